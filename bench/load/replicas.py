"""Simulated replicas of all jobs, in one process: ``python -m bench.load.replicas SOCKET PORT...``.

The portal launches and observes them through ``bench.load.simulated_backend``. Each sends what an agent sends, over
one connection of its own to a web process chosen at random, as by a Service of Kubernetes: ``begin``, reports of its
phases, lines and points in numbered batches, and heartbeats. Batches are due at the age of ``contract.BATCH_SECONDS``,
or the one that the portal named in its last answer, and are repeated until they are accepted
(``runtime.agent.delivery.shipping``).

The trainers of a job print ``Pace.lines`` lines a second in total, in turn, and the first trainer reports
``Pace.points`` points a second. The first ``speaking`` jobs have the full pace and the others the quiet one; both may
be changed while they run. Counts are kept per job for comparison with what the portal has stored.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from bench.load.http_client import Answer, Connection
from runtime import contract

_RETRY_SECONDS = 0.5
_TRAINER = f"{contract.TRAINER}-"
_FIRST_TRAINER = f"{_TRAINER}0"
_GONE = 404
_KINDS = {"logs": "lines", "metrics": "points"}


@dataclass
class Pace:
    """Lines and points of each job per second, and seconds of silence after which a replica sends a heartbeat."""

    lines: float = 0.0
    points: float = 0.0
    heartbeat: float = contract.HEARTBEAT_SECONDS


@dataclass
class Counts:
    """What the agents of this process have done. ``late``: seconds of the last calls."""

    calls: int = 0
    retries: int = 0
    refused: int = 0
    late: list[float] = field(default_factory=list)


class Stream:
    """Numbered entries of one kind of one replica, until the portal has accepted them."""

    def __init__(self) -> None:
        self.made = 0  # entries that were made
        self.taken = 0  # the last number that the portal has accepted
        self.oldest = 0.0  # when the first entry of the next batch was made
        self.waiting: list[Any] = []

    def add(self, entry: Any) -> None:
        if not self.waiting:
            self.oldest = time.monotonic()
        self.made += 1
        self.waiting.append(entry)

    def accept(self, last: int) -> None:
        del self.waiting[: max(0, last - self.taken)]
        self.taken = last


class Replica:
    """One simulated replica with its agent."""

    def __init__(self, name: str, attempt: Attempt, world: World) -> None:
        self.name, self._attempt, self._world = name, attempt, world
        self.phase = "starting"
        self.code: int | None = None
        self.stop = asyncio.Event()
        self.streams = {kind: Stream() for kind in _KINDS}
        headers = {"Authorization": f"Bearer {attempt.token}"}
        self._connection = Connection(random.choice(world.ports), headers)
        self._last_call = 0.0
        self._age = contract.BATCH_SECONDS

    async def run(self) -> None:
        with suppress(_Ended):
            await self._call("begin", {"replica": self.name})
            await self._report("starting")
            self._seen("running")
            await self._report("registered", incarnation=random.randrange(1, 1 << 40))
            async for _ in self._turns():
                await self._send_due(self._age)
            await self._send_due(0.0)
            await self._report("exited", code=0)
        self.code = 0
        self._seen("exited")
        self._connection.close()

    def _seen(self, phase: str) -> None:
        self.phase = phase
        self._world.changed(self._attempt)

    async def _turns(self) -> AsyncIterator[None]:
        """Make entries at the pace, and yield whenever something may be due, until the replica is stopped."""
        next_entry = {kind: time.monotonic() + random.random() * self._pause(kind) for kind in _KINDS}
        while not self.stop.is_set():
            now = time.monotonic()
            for kind in _KINDS:
                pause = self._pause(kind)
                while next_entry[kind] <= now:
                    self.streams[kind].add(self._entry(kind))
                    next_entry[kind] += pause
                next_entry[kind] = min(next_entry[kind], now + pause)
            yield
            due = [*next_entry.values(), self._heartbeat_due()]
            due += [stream.oldest + self._age for stream in self.streams.values() if stream.waiting]
            await self._sleep(min(due) - time.monotonic())

    def _pace(self) -> Pace:
        return self._world.pace_of(self._attempt)

    def _heartbeat_due(self) -> float:
        return self._last_call + max(self._pace().heartbeat, self._age)

    def _pause(self, kind: str) -> float:
        """Return the seconds between two entries of this replica."""
        pace = self._pace()
        own = pace.lines / self._attempt.trainers if kind == "logs" else pace.points
        speaks = self.name.startswith(_TRAINER) if kind == "logs" else self.name == _FIRST_TRAINER
        return 1 / own if speaks and own else 1e9

    async def _sleep(self, seconds: float) -> None:
        waits = [asyncio.ensure_future(event.wait()) for event in (self.stop, self._world.paced)]
        await asyncio.wait(waits, timeout=max(0.0, seconds), return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    def _entry(self, kind: str) -> Any:
        made = self.streams[kind].made + 1
        if kind == "logs":
            return [
                time.time(),
                "stdout",
                f"step {made}: cost {2.3 / made:.6f}, {random.random() * 1000:.1f} records/s",
            ]
        return [time.time(), float(made), "cost", 2.3 / made]

    async def _send_due(self, age: float) -> None:
        now = time.monotonic()
        for kind, stream in self.streams.items():
            while stream.waiting and now >= stream.oldest + age:
                await self._send_batch(kind, stream)
        if now >= self._heartbeat_due():
            await self._call("heartbeat", {"replica": self.name})

    async def _send_batch(self, kind: str, stream: Stream) -> None:
        body = {"replica": self.name, "first": stream.taken + 1, _KINDS[kind]: list(stream.waiting)}
        answer = await self._call(kind, body)
        stream.accept(int(answer["last"]))
        stream.oldest = time.monotonic()

    async def _report(self, phase: str, **facts: Any) -> None:
        await self._call("report", {"replica": self.name, "start_number": 1, "phase": phase, **facts})

    async def _call(self, call: str, request: Any) -> Any:
        """Repeat a call until the portal accepts it. Raises _Ended once the attempt is over."""
        counts, path = self._world.counts, f"/ingest/v1/attempts/{self._attempt.id}/{call}"
        while True:
            began = time.monotonic()
            answer = await self._try("POST", path, request)
            self._last_call = time.monotonic()
            counts.calls += 1
            counts.late.append(self._last_call - began)
            if answer is not None and answer.status == 200:
                body = answer.json()
                self._age = body.get(contract.PACE, contract.BATCH_SECONDS)
                return body
            if answer is not None and _is_over(answer):
                raise _Ended
            counts.retries += 1
            counts.refused += answer is not None
            await asyncio.sleep(_RETRY_SECONDS * (1 + random.random()))

    async def _try(self, method: str, path: str, body: Any) -> Answer | None:
        try:
            return await self._connection.request(method, path, body)
        except OSError:
            return None


class _Ended(Exception):
    """The attempt is over for the portal."""


def _is_over(answer: Answer) -> bool:
    return answer.status == _GONE or (answer.status == 409 and answer.json().get("code") == "stale_attempt")


class Attempt:
    """One launched attempt and its replicas."""

    def __init__(self, id_: str, token: str, number: int, names: list[str], world: World) -> None:
        self.id, self.token, self.number = id_, token, number
        self.trainers = sum(name.startswith(_TRAINER) for name in names)
        self.version = 0
        self.replicas = [Replica(name, self, world) for name in names]


class World:
    """All attempts, and the answers to the portal's backend and to the measurement."""

    def __init__(self, ports: list[int]) -> None:
        self.ports = ports
        self.counts = Counts()
        # Replaced whenever the pace changes: sleeping replicas then compute their next entry again.
        self.paced = asyncio.Event()
        self._full, self._quiet, self._speaking = Pace(), Pace(), 0
        self._launched = 0
        self._attempts: dict[str, Attempt] = {}
        self._removed: dict[str, int] = {}
        self._version = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def changed(self, attempt: Attempt) -> None:
        self._version += 1
        attempt.version = self._version

    def launch(self, attempt: str, token: str, replicas: list[str]) -> dict[str, Any]:
        """Start the replicas unless they were started."""
        if attempt not in self._attempts and attempt not in self._removed:
            made = self._attempts[attempt] = Attempt(attempt, token, self._launched, replicas, self)
            self._launched += 1
            self.changed(made)
            for replica in made.replicas:
                task = asyncio.create_task(replica.run())
                self._tasks.add(task)
                task.add_done_callback(self._finished)
        return {}

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        task.result()  # an error is written to standard error

    def changes(self, since: int) -> dict[str, Any]:
        """Return the attempts that have changed after a version; None: removed."""
        found: dict[str, Any] = {
            one.id: [(replica.name, replica.phase, replica.code) for replica in one.replicas]
            for one in self._attempts.values()
            if one.version > since
        }
        found |= {id_: None for id_, version in self._removed.items() if version > since}
        return {"version": self._version, "attempts": found}

    def finish(self, attempt: str) -> dict[str, Any]:
        """End master and trainers, as after the last pass; the portal then stops the parameter servers."""
        for replica in self._attempts[attempt].replicas:
            if not replica.name.startswith(contract.PSERVER):
                replica.stop.set()
        return {}

    def stop(self, attempt: str) -> dict[str, Any]:
        for replica in self._attempts[attempt].replicas if attempt in self._attempts else ():
            replica.stop.set()
        return {}

    def cleanup(self, attempt: str) -> dict[str, Any]:
        if self._attempts.pop(attempt, None):
            self._version += 1
            self._removed[attempt] = self._version
        return {}

    def pace_of(self, attempt: Attempt) -> Pace:
        return self._full if attempt.number < self._speaking else self._quiet

    def speed(self, full: list[float], quiet: list[float], speaking: int) -> dict[str, Any]:
        """Set both paces, each as lines, points, heartbeat, and how many of the attempts have the full one."""
        self._full, self._quiet, self._speaking = Pace(*full), Pace(*quiet), speaking
        changed, self.paced = self.paced, asyncio.Event()
        changed.set()
        return {}

    def count(self) -> dict[str, Any]:
        """Return the counts since the last call, and by attempt the entries made and accepted."""
        counts, self.counts = self.counts, Counts()
        kept = {
            one.id: [
                [sum(getattr(replica.streams[kind], what) for replica in one.replicas) for what in ("made", "taken")]
                for kind in _KINDS
            ]
            for one in self._attempts.values()
        }
        late = sorted(counts.late)
        return {
            "calls": counts.calls,
            "retries": counts.retries,
            "refused": counts.refused,
            "p99": late[int(0.99 * (len(late) - 1))] if late else 0.0,
            "registered": sum(r.phase == "running" for one in self._attempts.values() for r in one.replicas),
            "attempts": kept,
        }

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        while line := await reader.readline():
            request = json.loads(line)
            answer = getattr(self, request.pop("op"))(**request)
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()


async def _main(path: str, ports: list[int]) -> None:
    world = World(ports)
    server = await asyncio.start_unix_server(world.serve, path, limit=1 << 22)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], list(map(int, sys.argv[2:]))))
