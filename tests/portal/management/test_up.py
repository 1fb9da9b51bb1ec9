"""``manage.py up`` as a process: start, a crash, the stop, and errors that prevent the start."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.servers.redis_server import RedisServer
from tests.waiting import until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[3]
START_SECONDS = 120


class Portal:
    """One ``manage.py up`` with a data directory and port of its own."""

    def __init__(self, data: Path, port: int, output: Path) -> None:
        self.data, self.port, self._output = data, port, output
        environment = os.environ | {
            "DJANGO_SETTINGS_MODULE": "portal.settings",
            "REGATTA_DATA_DIR": str(data),
            "REGATTA_ADMIN_PASSWORD": "open sesame",
            "PORT": str(port),
        }
        with output.open("w") as file:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "up"], cwd=ROOT, stdout=file, stderr=file, env=environment
            )

    def text(self) -> str:
        return self._output.read_text()

    def wait_for(self, condition: Callable[[], object], seconds: float = START_SECONDS) -> None:
        until("it comes to that", condition, seconds, story=self.text)

    def wait_until_ready(self) -> None:
        self.wait_for(lambda: "Regatta is ready at" in self.text() or self.process.poll() is not None)
        assert self.process.poll() is None, self.text()

    def children(self) -> dict[str, int]:
        """Return process ids by the command that each runs."""
        pids = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return {word: int(pid) for pid in pids for word in command_of(int(pid)) if word in ("serve", "work", "sweep")}

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        headers = {"Content-Type": "application/json"}
        connection.request(method, path, json.dumps(body) if body else None, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()


def command_of(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return []


def processes_of(data: Path) -> list[int]:
    """Return every process that was started for that data directory, whatever its current parent."""
    marker = f"REGATTA_DATA_DIR={data}\0".encode()
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and marker in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found


def heartbeats_of(data: Path) -> list[tuple[str, int]]:
    """Return kind and process id of each heartbeat."""
    with contextlib.closing(sqlite3.connect(data / "regatta.sqlite3")) as database:
        return database.execute("SELECT kind, pid FROM portal_processheartbeat").fetchall()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Portal]]:
    started: list[Portal] = []

    def run(data: Path | None = None, port: int | None = None) -> Portal:
        output = tmp_path / f"output-{len(started)}"
        started.append(Portal(data or tmp_path / "data", port or free_port(), output))
        return started[-1]

    yield run
    for portal in started:
        portal.process.kill()
        portal.process.wait()


def test_it_starts_mends_itself_and_stops_without_a_trace(start: Callable[..., Portal]) -> None:
    portal = start()
    portal.wait_until_ready()
    assert f"Regatta is ready at http://127.0.0.1:{portal.port} (Ctrl-C stops it)" in portal.text()
    body = {"username": "admin", "password": "open sesame"}
    assert portal.ask("POST", "/api/v1/auth/token/", body)[0] == 201

    # A second one on the same data directory is refused and does not affect the first.
    second = start(data=portal.data)
    assert second.process.wait(timeout=START_SECONDS) == 1
    assert "Another portal" in second.text()

    # A killed web process is restarted on the same socket: the next request only waits.
    os.kill(portal.children()["serve"], signal.SIGKILL)
    portal.wait_for(lambda: "web ended (signal SIGKILL); starting it again in 0.5 s." in portal.text())
    assert portal.ask("GET", "/healthz")[0] == 200

    portal.wait_for(lambda: {kind for kind, _ in heartbeats_of(portal.data)} == {"web", "worker", "sweep"})
    portal.process.send_signal(signal.SIGINT)
    assert portal.process.wait(timeout=10) == 0
    assert processes_of(portal.data) == []
    # Only the web process that was killed could not remove its own.
    assert [kind for kind, _ in heartbeats_of(portal.data)] == ["web"]


def test_killed_outright_it_leaves_no_process_and_starts_again_on_its_data(start: Callable[..., Portal]) -> None:
    portal = start()
    portal.wait_until_ready()
    portal.process.kill()
    portal.process.wait()
    portal.wait_for(lambda: not processes_of(portal.data), seconds=5)

    again = start(data=portal.data, port=portal.port)
    again.wait_until_ready()
    assert "Sign in as admin" not in again.text()
    again.process.send_signal(signal.SIGTERM)
    assert again.process.wait(timeout=10) == 0


def refusal(portal: Portal) -> str:
    """Return the one message with which the start fails."""
    assert portal.process.wait(timeout=START_SECONDS) == 1
    lines = portal.text().strip().splitlines()
    assert len(lines) == 1, portal.text()
    return lines[0]


def test_a_port_in_use_is_one_clear_message(start: Callable[..., Portal]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "is in use" in refusal(start(port=taken.getsockname()[1]))


def test_a_data_directory_that_cannot_be_one_is_one_clear_message(start: Callable[..., Portal], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "Set REGATTA_DATA_DIR" in refusal(start(data=tmp_path / "file"))


@pytest.mark.redis
def test_a_password_that_redis_refuses_is_one_clear_message(
    start: Callable[..., Portal], redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGATTA_BROKER_URL", redis.url(password="an-old-one"))
    assert "refuses REGATTA_BROKER_URL" in refusal(start())
