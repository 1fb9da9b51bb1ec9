"""Two web processes and a worker that reach each other by Redis only, and their requests while Redis is lost.

No sweep runs, and readers do not poll: a change is seen by notification or not at all.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.end_to_end.support import processes
from tests.ports import free_port
from tests.servers.redis_server import RedisServer
from tests.waiting import until

pytestmark = [pytest.mark.redis, pytest.mark.processes, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[3]
START_SECONDS = 120.0
FRAME_SECONDS = 20.0
# A submission takes 0.1 s on an idle machine, and at most one second more for counters that do not answer. A Redis
# that a request waits for without a limit would take far longer.
LONGEST_REQUEST_SECONDS = 8.0
SERVICE_RESTART = 1012  # RFC 6455 and its registry of close codes
_WITHOUT_POLLING = """
import django
django.setup()
from django.core.management import call_command
from jobs.streams import tailer
tailer.POLL_SECONDS = 3600.0
call_command("serve")
"""


class Site:
    """A portal of separate processes on one data directory."""

    def __init__(self, directory: Path, redis: RedisServer) -> None:
        self.ports = [free_port(), free_port()]
        self._directory = directory
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("REGATTA_", "DJANGO_"))}
        self._environment = inherited | {
            "DJANGO_SETTINGS_MODULE": "portal.settings",
            "REGATTA_DATA_DIR": str(directory),
            "REGATTA_ADMIN_PASSWORD": "open sesame",
            "REGATTA_LOCAL_ISOLATION": "none",
            # Without a sweep no job ends, so every job of the test needs a reservation of its own.
            "REGATTA_QUOTA_JOBS": "1000",
            "REGATTA_QUOTA_CPU": "1000",
            "REGATTA_QUOTA_MEMORY": str(1000 * 1024**3),
            "REGATTA_REDIS_URL": redis.url(database=1),
            "REGATTA_BROKER_URL": redis.url(database=0),
        }

    def start(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        assert self._run("manage.py", "prepare").wait(START_SECONDS) == 0, self.output()
        self.webs = [self._run("-c", _WITHOUT_POLLING, PORT=str(port)) for port in self.ports]
        self._run("manage.py", "work")
        until(
            "both web processes answer", lambda: all(map(self._answers, self.ports)), START_SECONDS, story=self.output
        )
        body = {"username": "admin", "password": "open sesame", "name": "test"}
        self._token = httpx.post(f"{self.address(0)}/api/v1/auth/token/", json=body, timeout=20).json()["token"]

    def _run(self, *command: str, **settings: str) -> subprocess.Popen[bytes]:
        with (self._directory / "output").open("ab") as output:
            environment = self._environment | settings
            return subprocess.Popen(
                [sys.executable, *command],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def output(self) -> str:
        return (self._directory / "output").read_text()[-3000:]

    def address(self, web: int) -> str:
        return f"http://127.0.0.1:{self.ports[web]}"

    def _answers(self, port: int) -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"}

    def submit(self, web: int) -> str:
        """Submit a job to a web process; return its id. Fails if the answer takes too long."""
        began = time.monotonic()
        spec = {"name": "once", "framework": "command", "entrypoint": "once.py", "files": {"once.py": ""}}
        url = f"{self.address(web)}/api/v1/namespaces/admin/jobs"
        answer = httpx.post(url, json=spec, headers=self.headers, timeout=60)
        assert answer.status_code == 201, answer.text
        assert time.monotonic() - began < LONGEST_REQUEST_SECONDS, self.output()
        return str(answer.json()["id"])

    def moves_on(self, job: str) -> None:
        """Wait until the worker has reconciled a job."""
        url = f"{self.address(0)}/api/v1/jobs/{job}"
        state: Callable[[], str] = lambda: httpx.get(url, headers=self.headers, timeout=20).json()["state"]  # noqa: E731
        until("the worker takes the hint", lambda: state() != "QUEUED", story=self.output)

    def stop(self) -> None:
        def are_gone() -> bool:
            for process in processes.of(self._directory):
                processes.kill(process.pid)
            return not processes.of(self._directory)

        until("all processes have ended", are_gone, every=0.1)


@pytest.fixture
def site(tmp_path: Path, fragile_redis: RedisServer) -> Iterator[Site]:
    made = Site(tmp_path / "data", fragile_redis)
    try:
        made.start()
        yield made
    finally:
        made.stop()


class Listing:
    """The jobs of the namespace as a websocket of one web process shows them."""

    def __init__(self, site: Site, web: int) -> None:
        url = f"{site.address(web).replace('http', 'ws', 1)}/ws/v1/stream"
        self._socket = connect(url, additional_headers=site.headers, open_timeout=20)
        self._socket.send(json.dumps({"op": "sub", "stream": "jobs", "namespace": "admin"}))

    def shows(self, job: str) -> None:
        """Wait for a frame with the job. Raises TimeoutError."""
        give_up = time.monotonic() + FRAME_SECONDS
        # Heartbeats come in between.
        while job not in self._socket.recv(timeout=max(0.0, give_up - time.monotonic()), decode=True):
            continue

    def close_code(self) -> int | None:
        """Return the code with which the portal closes the socket."""
        with pytest.raises(ConnectionClosed):
            while True:
                self._socket.recv(timeout=FRAME_SECONDS)
        return self._socket.close_code


@pytest.mark.timeout(240)
@pytest.mark.invariant(
    "Web processes on one Redis notify each other; while it is full, lost or silent, requests succeed in time."
)
def test_web_processes_and_the_worker_reach_each_other_and_survive_the_loss_of_redis(
    site: Site, fragile_redis: RedisServer
) -> None:
    first = site.submit(web=1)
    site.moves_on(first)
    listing = Listing(site, web=0)
    listing.shows(first)
    listing.shows(site.submit(web=1))

    outages = (
        (fragile_redis.fill, fragile_redis.relieve),
        (fragile_redis.kill, fragile_redis.start),
        (fragile_redis.freeze, fragile_redis.thaw),
    )
    for harm, repair in outages:
        harm()
        for web in (0, 1):
            site.submit(web)
        repair()
        # Processes notice the end of the outage after a while.
        until("the worker takes hints again", lambda: _is_taken(site), 90, story=site.output)
        until("the other web process rings again", lambda: _is_seen(site, listing), 60, story=site.output)

    # A rolling restart, or an autoscaler that removes a web process: readers connect again, to another one.
    site.webs[0].terminate()
    assert listing.close_code() == SERVICE_RESTART
    Listing(site, web=1).shows(first)


def _is_taken(site: Site) -> bool:
    try:
        site.moves_on(site.submit(web=1))
    except AssertionError:
        return False
    return True


def _is_seen(site: Site, listing: Listing) -> bool:
    try:
        listing.shows(site.submit(web=1))
    except TimeoutError:
        return False
    return True
