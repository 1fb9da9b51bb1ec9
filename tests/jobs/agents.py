"""The control channel of one replica in this process: real frames, proofs and streams, and no user code."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from jobs.backends import factory as backend_factory
from jobs.backends.base import AttemptRef, ControlAddress
from jobs.control import keys
from runtime import contract
from runtime.agent import settings as agent_settings
from runtime.agent.control import server
from runtime.agent.control.server import ControlServer
from runtime.agent.tunnel.handler import connect
from runtime.control import identity

REPLICA = "trainer-0"


class Agent:
    """An agent that only answers the call ``connect``. ``temporary`` is the temporary directory of its replica."""

    def __init__(self, directory: Path, attempt: str) -> None:
        self.directory, self.temporary = directory, directory / "tmp"
        self.temporary.mkdir(parents=True)
        configuration = agent_settings.read(
            {
                contract.JOB_ID: "job", contract.ATTEMPT_ID: attempt, contract.ROLE: contract.TRAINER,
                contract.INGEST_URL: "", contract.INGEST_TOKEN: "", contract.COORDINATION: "",
                contract.REPLICA_DIR: str(directory), contract.CONTROL_KEY: keys.current(attempt),
            }
        )  # fmt: skip
        listening = server.listener(configuration)
        assert listening is not None
        child: Any = None
        self._server = ControlServer(configuration, child, listening, {"connect": connect})
        self._server.start()

    def close(self) -> None:
        self._server.close()


class OneReplica:
    """A backend of which only the address of an agent is known."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def control_address(self, ref: AttemptRef, replica: str) -> ControlAddress | None:
        return ControlAddress(socket=self._agent.directory / identity.SOCKET_FILE) if replica == REPLICA else None


@contextmanager
def running_agent(directory: Path, attempt: str, monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[Agent]:
    """Run an agent, and make it the only one that the portal's backend has."""
    agent = Agent(directory, attempt)
    monkeypatch.setattr(backend_factory, "BACKENDS", {"one": lambda: OneReplica(agent)})
    settings.CLUSTER_BACKEND = "one"
    yield agent
    agent.close()


@contextmanager
def serving(directory: Path, serve: Callable[[socket.socket], None], name: str = "notebook.socket") -> Iterator[None]:
    """Serve each connection to the Unix socket in a thread. ``serve`` gets it, and it is closed afterwards."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(directory / name))
    listening.listen(64)

    def handle(link: socket.socket) -> None:
        with link, suppress(OSError):
            serve(link)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=handle, args=(listening.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
