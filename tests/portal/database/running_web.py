"""A web process as an operator starts it, on a PostgreSQL that tests take away."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.ports import free_port
from tests.servers.postgres_server import PostgresServer
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[3]
START_SECONDS = 120.0
# How long the web process stays ready without its database.
READY_SECONDS = 1.0
_PASSWORD = "the one of yesterday"
_ROWS = """
import json
from tests.factories import make_attempt, make_job, make_token
from tests.personas import make_personas, session_of
from jobs.lifecycle.states import JobState
from jobs.models import Replica
people = make_personas()
attempt = make_attempt(make_job(people.namespace, people.owner, attempt=1, state=JobState.SUCCEEDED), token="agent")
Replica.objects.create(attempt=attempt, name="trainer-0", role="trainer", index=0)
rows = {"attempt": str(attempt.pk), "job": str(attempt.job_id), "session": session_of(people.owner)}
print(json.dumps({**rows, "token": make_token(people.owner)}))
"""


@dataclass(frozen=True)
class Web:
    """The process: its two ports, its environment, and rows with which requests get in."""

    server: PostgresServer
    port: int
    agent_port: int
    environment: Mapping[str, str]
    rows: Mapping[str, str]

    def ask(self, method: str, path: str, *, agents: bool = False, **more: Any) -> httpx.Response:
        port = self.agent_port if agents else self.port
        return httpx.request(method, f"http://127.0.0.1:{port}{path}", timeout=60, **more)

    def page(self, path: str, language: str = "en") -> httpx.Response:
        """Request a page as a browser that is signed in."""
        cookie = f"regatta-session={self.rows['session']}"
        return self.ask("GET", path, headers={"Cookie": cookie, "Accept-Language": language})

    def api(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Call the API with a personal token."""
        return self.ask(method, path, headers={"Authorization": f"Bearer {self.rows['token']}"}, **more)

    def ingest(self, call: str, body: Mapping[str, Any]) -> httpx.Response:
        """Make a call of the attempt's agent, on the agents' port."""
        path = f"/ingest/v1/attempts/{self.rows['attempt']}/{call}"
        return self.ask("POST", path, agents=True, json=body, headers={"Authorization": "Bearer agent"})

    @contextlib.contextmanager
    def outage(self, kind: str) -> Iterator[None]:
        """Take the database away inside the block."""
        lose, give_back = _OUTAGES[kind]
        lose(self.server)
        try:
            yield
        finally:
            give_back(self.server)


_Change = Callable[[PostgresServer], None]
_OUTAGES: Mapping[str, tuple[_Change, _Change]] = {
    "stopped": (lambda server: server.shut_down("fast"), PostgresServer.go_on),
    "crashed": (lambda server: server.shut_down("immediate"), PostgresServer.go_on),
    "another password": (lambda server: server.require_password("the one of today"), PostgresServer.require_none),
}
OUTAGES = tuple(_OUTAGES)


@contextlib.contextmanager
def running_web(data: Path, disk: Path | None = None) -> Iterator[Web]:
    """Run a PostgreSQL and a web process on it, on two ports. ``disk``: where the server has its data."""
    server = PostgresServer(parent=disk)
    server.start()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("REGATTA_", "DJANGO_"))}
    port, agent_port = free_port(), free_port()
    environment |= {
        "DJANGO_SETTINGS_MODULE": "portal.settings",
        "PYTHONPATH": str(ROOT),
        "PORT": str(port),
        "REGATTA_AGENT_PORT": str(agent_port),
        "REGATTA_ADMIN_PASSWORD": "correct horse battery staple",
        "REGATTA_DATABASE_URL": server.url_with(_PASSWORD),
        "REGATTA_DATA_DIR": str(data),
        "REGATTA_READY_SECONDS": str(READY_SECONDS),
        "REGATTA_SWEEP_SECONDS": "0.1",
    }
    try:
        _manage(environment, "prepare")
        rows = json.loads(_manage(environment, "shell", "--no-imports", "--command", _ROWS).splitlines()[-1])
        with running(environment, "serve", data / "web.log") as log:
            web = Web(server, port, agent_port, environment, rows)
            until("the web process is ready", lambda: _is_ready(web), START_SECONDS, story=log.read_text)
            yield web
    finally:
        server.stop()


@contextlib.contextmanager
def running(environment: Mapping[str, str], command: str, log: Path) -> Iterator[Path]:
    """Run a command of ``manage.py`` inside the block; its output is in the file."""
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "manage.py", command], cwd=ROOT, env=environment, stdout=output, stderr=output
        )
    try:
        yield log
    finally:
        process.kill()
        process.wait()


def _manage(environment: Mapping[str, str], *arguments: str) -> str:
    command = [sys.executable, "manage.py", *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=START_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _is_ready(web: Web) -> bool:
    try:
        return web.ask("GET", "/readyz").status_code == httpx.codes.OK
    except httpx.TransportError:
        return False
