"""Simulated browsers, in one process: ``python -m bench.load.browsers FILE``.

The file is a ``Visit`` as JSON. Each browser has an account, a session and a web process of its own. It opens the page
of a job, makes the requests of its scripts (``frontend/src/elements``: chart and log), follows logs, metrics and state
over a websocket for about ``Visit.stay`` seconds, then opens the list of jobs and follows that; and so on until the
standard input is closed. A browser without a socket polls. Then the results are printed as JSON.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from bench.load.http_client import Connection

COOKIE = "regatta-session"


@dataclass(frozen=True)
class Visit:
    """Browsers to simulate. ``sessions``: a cookie each; ``jobs``: ids of running jobs of the namespace; ``stay``:
    seconds on a page."""

    ports: Sequence[int]
    namespace: str
    sessions: Sequence[str]
    jobs: Sequence[str]
    stay: float


@dataclass
class Seen:
    """Results: seconds of each request, by kind; other statuses than 200; what the sockets have delivered."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: {"page": [], "api": []})
    failed: int = 0
    sockets: int = 0
    closed: int = 0
    lines: int = 0
    lost: int = 0
    doubled: int = 0


class Browser:
    def __init__(self, visit: Visit, session: str, seen: Seen) -> None:
        self._visit, self._seen = visit, seen
        self._port = random.choice(visit.ports)
        self._cookie = {"Cookie": f"{COOKIE}={session}"}
        self._connection = Connection(self._port, self._cookie)

    async def run(self) -> None:
        await asyncio.sleep(random.random() * self._visit.stay)
        while True:
            await self._visit_job(random.choice(self._visit.jobs))
            await self._visit_list()

    async def _visit_job(self, job: str) -> None:
        await self._get("page", f"/n/{self._visit.namespace}/jobs/{job}")
        chart = await self._get("api", f"/api/v1/jobs/{job}/metrics?x=step&buckets=1000")
        log = await self._get("api", f"/api/v1/jobs/{job}/logs?after=-1&limit=500")
        asks: list[dict[str, Any]] = [
            {"op": "sub", "id": "1", "stream": "logs", "job": job, "after": log["last"] if log else 0},
            {"op": "sub", "id": "2", "stream": "metrics", "job": job, "after": chart["next"] if chart else 0},
            {"op": "sub", "id": "3", "stream": "status", "job": job},
        ]
        await self._follow(asks, log["last"] if log else 0, f"/api/v1/jobs/{job}")

    async def _visit_list(self) -> None:
        namespace = self._visit.namespace
        await self._get("page", f"/n/{namespace}/jobs")
        await self._follow(
            [{"op": "sub", "id": "1", "stream": "jobs", "namespace": namespace}],
            0,
            f"/api/v1/namespaces/{namespace}/jobs",
        )

    async def _follow(self, asks: Sequence[dict[str, Any]], cursor: int, state: str) -> None:
        """Follow streams during a stay; without a socket, request the state as the page does."""
        until = time.monotonic() + self._visit.stay * (0.5 + random.random())
        origin = f"http://127.0.0.1:{self._port}"
        try:
            async with connect(
                f"ws://127.0.0.1:{self._port}/ws/v1/stream", additional_headers=self._cookie, origin=origin,  # type: ignore[arg-type]
                max_size=None, compression=None, open_timeout=30, proxy=None,
            ) as socket:  # fmt: skip
                self._seen.sockets += 1
                for ask in asks:
                    await socket.send(json.dumps(ask))
                while (left := until - time.monotonic()) > 0:
                    with suppress(TimeoutError):
                        cursor = self._took(json.loads(await asyncio.wait_for(socket.recv(), left)), cursor)
        except (OSError, WebSocketException):
            self._seen.closed += 1
            await asyncio.sleep(3)
        await self._get("api", state)

    def _took(self, frame: dict[str, Any], cursor: int) -> int:
        """Count the lines of a frame, and return the cursor after it."""
        if frame.get("t") != "logs":
            return cursor
        self._seen.lines += len(frame["lines"])
        self._seen.lost += max(0, frame["lo"] - cursor - 1)
        self._seen.doubled += max(0, cursor + 1 - frame["lo"])
        return int(frame["hi"])

    async def _get(self, kind: str, path: str) -> Any:
        """Request a page or a state; None if there is none."""
        began = time.monotonic()
        try:
            answer = await self._connection.request("GET", path)
        except OSError:
            self._seen.failed += 1
            return None
        self._seen.seconds[kind].append(time.monotonic() - began)
        if answer.status != 200:
            self._seen.failed += 1
            return None
        return answer.json() if kind == "api" else answer.body


async def _main(visit: Visit) -> None:
    seen = Seen()
    tasks = [asyncio.create_task(Browser(visit, session, seen).run()) for session in visit.sessions]
    await asyncio.to_thread(sys.stdin.read)
    failures = [task.exception() for task in tasks if task.done()]
    for task in tasks:
        task.cancel()
    print(json.dumps({**asdict(seen), "errors": [repr(failure) for failure in failures]}), flush=True)


if __name__ == "__main__":
    asyncio.run(_main(Visit(**json.loads(Path(sys.argv[1]).read_text()))))
