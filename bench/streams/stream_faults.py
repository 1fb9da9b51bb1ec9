"""S6: lines lost, doubled or out of order while processes are killed at random for two minutes under load.

A whole portal with Redis runs a job that prints 1,000 numbered lines per second. Every few seconds one of these is
ended, by a seeded choice: the whole portal (restarted on the same data), its web process, its worker, Redis (restarted
on the same port), or the socket of the reader, which reconnects from its cursor. The numbers that the reader received
and those that are finally stored are compared with the printed ones.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
from websockets.exceptions import WebSocketException
from websockets.sync.client import ClientConnection, connect

from bench.environment import servers
from bench.environment.servers import free_port, program, wait_until
from bench.pages import start as portal
from bench.report import Row, missed
from bench.scale import scale

SECONDS, EVERY_SECONDS = scale(120.0, 20.0), 6.0
RATE, SEED = scale(1_000, 100), 7
VICTIMS = ("portal", "web process", "worker", "Redis", "socket")
_CASE = f"{SECONDS:g} s of kills, {RATE:,} lines/s"
_PATIENCE_SECONDS = 120.0
_CODE = """\
import time
begun = time.monotonic()
for number in range(1, TOTAL + 1):
    if number % 20 == 0:
        time.sleep(max(0.0, begun + number / RATE - time.monotonic()))
    print(f"n={number}", flush=True)
"""


def measure() -> Iterator[Row]:
    try:
        program("redis-server")
    except servers.Absent as error:
        yield missed("S6", f"{_CASE}: lines lost, doubled, out of order", "0, 0, 0", str(error))
        return
    total = int(RATE * SECONDS)
    with tempfile.TemporaryDirectory(prefix="regatta-bench-") as scratch, _site(Path(scratch)) as site:
        job = site.submit(total)
        reader = Reader(site.address, site.token, job)
        kills = _kill_for(SECONDS, site, reader)
        shown = reader.finish(total)
        stored = site.stored(job)
        site.check(job)
    note = ", ".join(f"{count} x {name}" for name, count in kills.items())
    for where, numbers in (("as a socket showed them", shown), ("as stored", stored)):
        for what, count in faults(numbers, total).items():
            yield Row("S6", f"{_CASE}: lines {what}, {where}", count, "0", count == 0, note=note)


def faults(numbers: Sequence[int], total: int) -> Mapping[str, int]:
    """Count the faults in the numbers 1 to ``total`` as they arrived."""
    distinct = set(numbers)
    return {
        "lost": total - len(distinct),
        "doubled": len(numbers) - len(distinct),
        "out of order": sum(after < before for before, after in pairwise(numbers)),
    }


def _kill_for(seconds: float, site: Site, reader: Reader) -> Mapping[str, int]:
    """End something every few seconds. Return how often each was ended."""
    chance, kills = random.Random(SEED), dict.fromkeys(VICTIMS, 0)
    actions: Mapping[str, Callable[[], None]] = {
        "portal": site.restart,
        "web process": lambda: site.kill("serve"),
        "worker": lambda: site.kill("work"),
        "Redis": site.restart_redis,
        "socket": reader.cut,
    }
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        victim = chance.choice(VICTIMS)
        actions[victim]()
        kills[victim] += 1
        time.sleep(EVERY_SECONDS * chance.uniform(0.5, 1.5))
    return kills


@dataclass
class Site:
    """Portal with a Redis, both of which can be killed and restarted."""

    folder: Path
    port: int
    redis_port: int
    token: str = ""
    _process: subprocess.Popen[bytes] | None = None
    _redis: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._start_redis()
        self._start()
        with httpx.Client(base_url=self.address, timeout=60) as http:
            body = {"username": "admin", "password": portal.PASSWORD, "name": "bench"}
            self.token = portal.answer_of(http.post("/api/v1/auth/token", json=body))["token"]

    def _start(self) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("REGATTA_")}
        settings = {
            "PORT": str(self.port),
            "REGATTA_DATA_DIR": str(self.folder / "data"),
            "REGATTA_INGEST_URL": self.address,
            "REGATTA_REDIS_URL": f"redis://127.0.0.1:{self.redis_port}/0",
            "REGATTA_ADMIN_PASSWORD": portal.PASSWORD,
        }
        with (self.folder / "portal.log").open("a") as log:
            command = [sys.executable, "manage.py", "up"]
            self._process = subprocess.Popen(command, env={**kept, **settings}, stdout=log, stderr=log)
        wait_until(self._is_healthy, "the start of the portal", _PATIENCE_SECONDS)

    def _is_healthy(self) -> bool:
        with suppress(httpx.HTTPError):
            return httpx.get(f"{self.address}/healthz", timeout=2).status_code == 200
        return False

    def _start_redis(self) -> None:
        command = [program("redis-server"), "--port", str(self.redis_port), "--save", "", "--bind", "127.0.0.1"]
        self._redis = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        wait_until(lambda: servers.answers(self.redis_port), "the start of Redis")

    def restart_redis(self) -> None:
        _end(self._redis)
        self._start_redis()

    def restart(self) -> None:
        """Kill the whole portal with its children, while jobs continue, and restart it on the same data."""
        _end(self._process)
        self._start()

    def kill(self, command: str) -> None:
        """Kill the child that runs ``manage.py <command>``, if there is one now; the portal starts another."""
        assert self._process is not None
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if parent == self._process.pid and command.encode() in words:
                    os.kill(int(entry.name), signal.SIGKILL)

    def submit(self, total: int) -> str:
        code = _CODE.replace("TOTAL", str(total)).replace("RATE", str(RATE))
        with httpx.Client(base_url=self.address, headers=self._headers, timeout=60) as http:
            # A program without the runtime: a trainer would have to register within a minute.
            plain = {"framework": "command", "entrypoint": ["python", "train.py"]}
            body = {"name": "prints", "files": {"train.py": code}, **plain}
            namespace = portal.namespace_of(http)
            id: str = portal.answer_of(http.post(f"/api/v1/namespaces/{namespace}/jobs", json=body))["id"]
            portal.wait_until(http, f"/api/v1/jobs/{id}/logs", lambda page: bool(page["lines"]))
        return id

    def check(self, job: str) -> None:
        """Raise RuntimeError if the job did not complete: then lines were not printed, rather than lost."""
        with httpx.Client(base_url=self.address, headers=self._headers, timeout=60) as http:
            portal.wait_until(http, f"/api/v1/jobs/{job}", lambda job: job["finished"] is not None)
            found = portal.answer_of(http.get(f"/api/v1/jobs/{job}"))
        if found["state"] != "SUCCEEDED":
            raise RuntimeError(f"The job is {found['state']}: {found['why']}")

    def stored(self, job: str) -> list[int]:
        """Return the numbers of all lines that the API returns."""
        numbers: list[int] = []
        after, more = 0, True
        with httpx.Client(base_url=self.address, headers=self._headers, timeout=60) as http:
            while more:
                query = {"after": after, "limit": 1000}
                page = portal.answer_of(http.get(f"/api/v1/jobs/{job}/logs", params=query))
                numbers += _numbers(page["lines"])
                after, more = page["last"], page["more"]
        return numbers

    @property
    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def close(self) -> None:
        if self._process is not None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(30)
        _end(self._process)
        _end(self._redis)


def _end(process: subprocess.Popen[bytes] | None) -> None:
    if process is not None:
        process.kill()
        process.wait()


@contextmanager
def _site(folder: Path) -> Iterator[Site]:
    site = Site(folder, free_port(), free_port())
    try:
        site.start()
        yield site
    finally:
        site.close()


class Reader:
    """Follows a job's log over a socket in a separate thread, and reconnects from its cursor."""

    def __init__(self, address: str, token: str, job: str) -> None:
        self._url = f"{address.replace('http', 'ws', 1)}/ws/v1/stream"
        self._headers = {"Authorization": f"Bearer {token}"}
        self._job, self._after = job, 0
        self._numbers: list[int] = []
        self._link: ClientConnection | None = None
        self._over = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """Break the connection below the protocol, like a lost network."""
        if self._link is not None:
            with suppress(OSError):
                self._link.socket.shutdown(2)

    def finish(self, total: int) -> list[int]:
        """Return the numbers in the order of arrival, once the last one has arrived or the wait times out."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < deadline and (not self._numbers or self._numbers[-1] < total):
            time.sleep(0.1)
        self._over = True
        self.cut()
        self._thread.join(10)
        return self._numbers

    def _run(self) -> None:
        while not self._over:
            with suppress(OSError, WebSocketException, EOFError):
                self._follow()
            time.sleep(0.2)

    def _follow(self) -> None:
        with connect(self._url, additional_headers=self._headers, max_size=None, open_timeout=5) as link:
            self._link = link
            link.send(json.dumps({"op": "sub", "stream": "logs", "job": self._job, "after": self._after}))
            for message in link:
                self._take(json.loads(message))

    def _take(self, frame: dict[str, Any]) -> None:
        if frame["t"] == "logs":
            self._numbers += _numbers(frame["lines"])
            self._after = frame["hi"]


def _numbers(lines: Sequence[Mapping[str, Any]]) -> list[int]:
    return [int(line["text"][2:]) for line in lines if line["text"].startswith("n=")]
