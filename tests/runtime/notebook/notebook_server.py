"""A real notebook server as a process, and clients of it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import websockets

from tests import waiting

ROOT = Path(__file__).resolve().parents[3]
BASE = "/n/team/notebooks/n1/"


class NotebookServer:
    """The server over its socket. ``home`` is a real directory."""

    def __init__(self, home: Path, temporary: Path) -> None:
        self.home, self.temporary = home, temporary
        self.socket = temporary / "notebook.socket"
        self.http = httpx.Client(
            transport=httpx.HTTPTransport(uds=str(self.socket)), base_url=f"http://notebook{BASE}", timeout=30
        )

    def start(self) -> None:
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "TMPDIR": str(self.temporary),
            "HOME": str(self.home),
            "REGATTA_NOTEBOOK_BASE_URL": BASE,
            "REGATTA_NOTEBOOK_HOME": str(self.home),
            "REGATTA_NOTEBOOK_NAME": "n1",
        }
        self._log = (self.temporary / "log").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "runtime.notebook"], env=environment, stdout=self._log, stderr=self._log
        )
        waiting.until("the server answers", self.answers, 60)

    def answers(self) -> bool:
        try:
            return self.http.get("regatta/activity").status_code == 200
        except httpx.TransportError:
            assert self.process.poll() is None, (self.temporary / "log").read_text()
            return False

    def stop(self) -> None:
        self.http.close()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._log.close()

    def write(self, name: str, *sources: str) -> None:
        """Create a notebook with cells ``c0``, ``c1`` ..."""
        cells = [
            {"id": f"c{n}", "cell_type": "code", "source": text, "metadata": {}, "outputs": [], "execution_count": None}
            for n, text in enumerate(sources)
        ]
        content = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}
        (self.home / name).write_text(json.dumps(content))

    def content(self, name: str) -> dict[str, Any]:
        """Return the notebook as a page gets it."""
        return dict(self.http.get(f"api/contents/{name}").raise_for_status().json()["content"])

    def save(self, name: str, content: dict[str, Any]) -> None:
        body = {"type": "notebook", "format": "json", "content": content}
        self.http.put(f"api/contents/{name}", json=body).raise_for_status()

    def on_disk(self, name: str) -> dict[str, Any]:
        return dict(json.loads((self.home / name).read_text()))

    def activity(self) -> dict[str, Any]:
        return dict(self.http.get("regatta/activity").raise_for_status().json())

    def session(self, name: str) -> str:
        """Start a kernel for a notebook as a page does. Return its identifier."""
        body = {"path": name, "name": name, "type": "notebook", "kernel": {"name": "python3"}}
        return str(self.http.post("api/sessions", json=body).raise_for_status().json()["kernel"]["id"])


@contextmanager
def running(home: Path) -> Iterator[NotebookServer]:
    """Provide a started server."""
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="nb-") as temporary:
        server = NotebookServer(home, Path(temporary))
        server.start()
        try:
            yield server
        finally:
            server.stop()


class Client:
    """A page's connection to a kernel, by the old protocol with JSON."""

    def __init__(self, socket: Any, session: str) -> None:
        self._socket, self.session = socket, session

    async def execute(self, cell: str | None, code: str) -> str:
        """Ask to execute a cell. Return the identifier of the request."""
        identity = uuid.uuid4().hex
        header = {"msg_id": identity, "session": self.session, "username": "", "version": "5.3", "date": ""}
        content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False, "stop_on_error": True}
        message = {
            "header": {**header, "msg_type": "execute_request"},
            "parent_header": {},
            "metadata": {"cellId": cell} if cell else {},
            "content": content,
            "channel": "shell",
            "buffers": [],
        }
        await self._socket.send(json.dumps(message))
        return identity

    async def messages(self, until: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
        """Return the messages up to one."""
        found = []
        while not found or not until(found[-1]):
            found.append(json.loads(await asyncio.wait_for(self._socket.recv(), 60)))
        return found

    async def finished(self, execution: str) -> list[dict[str, Any]]:
        """Return the messages up to the end of an execution."""
        return await self.messages(
            lambda one: (
                one["msg_type"] == "status"
                and one["content"]["execution_state"] == "idle"
                and one["parent_header"].get("msg_id") == execution
            )
        )


@asynccontextmanager
async def client(server: NotebookServer, kernel: str, session: str | None = None) -> AsyncIterator[Client]:
    """Provide a connection to a kernel."""
    session = session or uuid.uuid4().hex
    uri = f"ws://notebook{BASE}api/kernels/{kernel}/channels?session_id={session}"
    async with websockets.unix_connect(str(server.socket), uri, max_size=None, compression=None) as socket:
        yield Client(socket, session)


class Follower:
    """A page that follows the outputs of a notebook."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self.cursor, self.log = 0, ""

    async def follow(self, path: str, log: str = "", after: int = 0, session: str = "") -> None:
        request = {"follow": "k", "path": path, "log": log, "after": after, "session": session}
        await self._socket.send(json.dumps(request))

    async def operations(self, until: str = "end") -> list[dict[str, Any]]:
        """Return the operations up to one of a kind."""
        found: list[dict[str, Any]] = []
        while not any(one["op"] == until for one in found):
            frame = json.loads(await asyncio.wait_for(self._socket.recv(), 60))
            self.cursor, self.log = frame["cursor"], frame["log"]
            found += frame["operations"]
        return found


@asynccontextmanager
async def follower(server: NotebookServer) -> AsyncIterator[Follower]:
    """Provide a page's connection to the outputs."""
    uri = f"ws://notebook{BASE}regatta/outputs"
    async with websockets.unix_connect(str(server.socket), uri, max_size=None, compression=None) as socket:
        yield Follower(socket)


def text_of(operations: list[dict[str, Any]]) -> str:
    """Return what streams wrote."""
    outputs = [one["output"] for one in operations if one["op"] == "append"]
    return "".join(output["text"] for output in outputs if output["output_type"] == "stream")


def elapsed(begin: float) -> float:
    return time.monotonic() - begin
