"""A running notebook, its hostile server, and the portal's web server, all real but for the replica's process."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from jobs.lifecycle.states import JobState, ReplicaState
from jobs.models import Notebook, Replica
from jobs.notebooks import access, origin, sessions
from jobs.streams import tailer
from portal.asgi import make_application
from portal.common.clock import now
from portal.http.direct_body import http_protocol
from rbac.audit.context import NO_REQUEST
from rbac.models import User
from rbac.sign_in.sessions import handle_of
from tests.factories import make_attempt, make_job
from tests.jobs.agents import REPLICA, Agent, running_agent, serving
from tests.jobs.live.notebooks.hostile_server import HostileServer
from tests.personas import Personas, session_of


@dataclass
class Web:
    """The portal's web server, and one notebook."""

    port: int
    notebook: Notebook
    server: HostileServer

    @property
    def base(self) -> str:
        return access.base_url("team", self.notebook.pk)

    @property
    def host(self) -> str:
        """The Host header of the notebook's origin."""
        return f"{self.notebook.pk.hex}.notebook.localhost:{self.port}"

    @property
    def origin(self) -> str:
        return f"http://{self.host}"

    @property
    def portal(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, **headers: str) -> httpx.Client:
        """Return a client with these headers, by default of the portal's origin. It follows no redirects."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        return httpx.Client(base_url=self.portal, headers=given, timeout=20.0)

    def browser(self, user: User, **headers: str) -> httpx.Client:
        """Return a client of the notebook's origin with an opened session."""
        return self.client(host=self.host, cookie=self.cookie(user), origin=self.origin, **headers)

    def cookie(self, user: User, session: str = "") -> str:
        """Open a session with the notebook, and return its cookie. ``session``: the key of the portal's session."""
        handle = handle_of(session or session_of(user))
        ticket = sessions.issue(actor=user, notebook_id=self.notebook.pk, session=handle, portal=self.portal)
        opened = sessions.redeem(ticket, self.notebook.pk, NO_REQUEST)
        assert opened is not None
        return f"{origin.cookie_name()}={opened.secret}"

    def exchange(self, request: bytes) -> bytes:
        """Send bytes to the web server, and return what it sends until it closes the connection."""
        with socket.create_connection(("127.0.0.1", self.port), 20) as link:
            link.sendall(request)
            answer = b""
            while data := link.recv(65536):
                answer += data
        return answer


@pytest.fixture
def notebook(people: Personas) -> Notebook:
    """A running notebook of ``team``."""
    job = make_job(people.namespace, people.owner, attempt=1, state=JobState.RUNNING)
    Replica.objects.create(
        attempt=make_attempt(job), name=REPLICA, role="trainer", index=0, state=ReplicaState.REGISTERED
    )
    moment = now()
    return Notebook.objects.create(
        namespace=people.namespace, owner=people.owner, name="book", cpu=1, memory=2**30, idle_seconds=0,
        created=moment, last_used=moment, job=job,
    )  # fmt: skip


@pytest.fixture
def agent(notebook: Notebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[Agent]:
    assert notebook.job is not None
    attempt = str(notebook.job.attempts.get().pk)
    with running_agent(tmp_path / REPLICA, attempt, monkeypatch, settings) as agent:
        yield agent


@pytest.fixture
def web(agent: Agent, notebook: Notebook, settings: Any) -> Iterator[Web]:
    listening = socket.create_server(("127.0.0.1", 0))
    settings.PORT = port = listening.getsockname()[1]
    server = HostileServer()
    with serving(agent.temporary, server.serve), running_portal(listening):
        yield Web(port, notebook, server)


@contextlib.contextmanager
def running_portal(listening: socket.socket) -> Iterator[None]:
    """Serve the portal on the socket, in a thread of its own."""
    configuration = uvicorn.Config(
        make_application(), http=http_protocol(direct=False), ws="websockets-sansio", lifespan="off", access_log=False,
        log_config=None, proxy_headers=False, server_header=False, timeout_graceful_shutdown=1,
    )  # fmt: skip
    server = uvicorn.Server(configuration)
    # With its protocol known, the event loop sets TCP_NODELAY on connections.
    known = socket.socket(fileno=listening.detach())

    async def serve() -> None:
        await server.serve(sockets=[known])
        tailer.tailer().close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    yield
    server.should_exit = True
    thread.join(20)
