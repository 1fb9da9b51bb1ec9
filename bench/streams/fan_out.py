"""S2: one job's lines to many sockets through one web process: the share delivered exactly once, and the delay.

The lines are sent like an agent's, in batches to the ingest endpoint at a steady rate. The sockets belong to many
accounts and are read by two processes on the same machine. A line carries the time at which its batch was sent. The
peer is channels-redis as its documentation uses it: a message per line to a group, a consumer in that group per socket,
one process, a real Redis.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench.environment import servers, stage
from bench.report import Row, at_most, missed
from bench.scale import scale
from bench.streams.ingest import Sender
from bench.streams.readers import Reading, to_json

RATE, SOCKETS, SECONDS = scale(5_000, 200), scale(500, 10), scale(30, 4)
PEER_SECONDS = scale(10, 2)
BATCHES_A_SECOND = 10
SOCKETS_OF_AN_ACCOUNT = 20
READERS = 2
WINDOWS = 5
P99_GOAL_MS = 250.0
_DRAIN_SECONDS = 30.0
_CASE = f"{RATE:,} lines/s to {SOCKETS} sockets, one web process"

Send = Callable[[Sequence[tuple[float, str, str]]], None]


def measure() -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="regatta-bench-") as scratch:
        folder = Path(scratch)
        stage.open_database(folder / "data")
        seen = _ours(folder)
        ours = _share(seen)
        try:
            peer: float | None = _share(_peer(folder), RATE * PEER_SECONDS)
        except servers.Absent as error:
            peer = None
            yield missed("S2", f"channels-redis, {_CASE}", "", str(error))
    exact = ours == 100.0 and not any(each["doubled"] or each["lost"] for each in seen)
    lost, doubled = (sum(each[name] for each in seen) for name in ("lost", "doubled"))
    case = f"{_CASE}: % of the lines delivered; peer: channels-redis"
    yield Row("S2", case, ours, "100 exactly once", exact, peer, ours / peer if peer else None,
              note=f"{lost} lost, {doubled} doubled")  # fmt: skip
    yield at_most("S2", "the same: p99 from ingest to socket, ms", _p99_ms(seen), P99_GOAL_MS)


def _ours(folder: Path) -> list[dict[str, Any]]:
    job = stage.job()
    tokens = stage.tokens(-(-SOCKETS // SOCKETS_OF_AN_ACCOUNT))
    with stage.web(folder) as address:
        port = int(address.rpartition(":")[2])
        shown = [tokens[place // SOCKETS_OF_AN_ACCOUNT] for place in range(SOCKETS)]
        sender = Sender(address, str(job.attempt.pk), job.agent)
        readings = [
            Reading(port, "/ws/v1/stream", job.id, shown[part::READERS], RATE * SECONDS, SECONDS + _DRAIN_SECONDS)
            for part in range(READERS)
        ]
        return _read(folder, readings, lambda: _feed(sender.lines, SECONDS))


def _peer(folder: Path) -> list[dict[str, Any]]:
    with servers.redis() as redis:
        port = servers.free_port()
        command = [sys.executable, "-m", "bench.runtime.group_send_peer", redis, str(port)]
        with servers.running(command):
            servers.wait_until(lambda: servers.answers(port), "the start of the peer")
            sender = Sender(f"http://127.0.0.1:{port}", "peer", "")
            readings = [
                Reading(port, "/ws", "", [""] * len(range(part, SOCKETS, READERS)), RATE * PEER_SECONDS,
                        PEER_SECONDS + 5.0, frames=False)
                for part in range(READERS)
            ]  # fmt: skip
            return _read(folder, readings, lambda: _feed(sender.lines, PEER_SECONDS))


def _read(folder: Path, readings: Iterable[Reading], feed: Callable[[], None]) -> list[dict[str, Any]]:
    """Return what each socket received of what ``feed`` sends."""
    processes = []
    for number, reading in enumerate(readings):
        path = folder / f"reading-{number}.json"
        path.write_text(json.dumps(to_json(reading)))
        processes.append(
            subprocess.Popen(
                [sys.executable, "-m", "bench.streams.readers", str(path)], stdout=subprocess.PIPE, text=True
            )
        )
    for process in processes:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise RuntimeError("the sockets could not be opened")
    feed()
    answers = [json.loads(process.communicate()[0]) for process in processes]
    for answer in answers:
        for error in answer["errors"]:
            print(f"S2: {error}", file=sys.stderr)
    return [seen for answer in answers for seen in answer["seen"]]


def _feed(send: Send, seconds: float) -> None:
    """Send lines at the rate, in batches. After a late batch the next follows immediately, so that the rate holds."""
    size, begun = RATE // BATCHES_A_SECOND, time.monotonic()
    for turn in range(int(seconds * BATCHES_A_SECOND)):
        early = begun + turn / BATCHES_A_SECOND - time.monotonic()
        if early > 0:
            time.sleep(early)
        now, first = time.time(), turn * size + 1
        send([(now, "stdout", f"n={number} at={now:.6f} {'.' * 40}") for number in range(first, first + size)])


def _share(seen: Sequence[dict[str, Any]], lines: int = RATE * SECONDS) -> float:
    delivered: int = sum(each["lines"] for each in seen)
    return 100.0 * delivered / (lines * len(seen))


def _p99_ms(seen: Sequence[dict[str, Any]]) -> float:
    """Return the median over equal time windows of the p99 over the frames of all sockets."""
    frames = sorted((tuple(one) for each in seen for one in each["late"]), key=lambda one: one[0])
    size = max(1, len(frames) // WINDOWS)
    parts = [sorted(late for _at, late in frames[start : start + size]) for start in range(0, len(frames), size)]
    whole = [part for part in parts if len(part) == size]
    return 1000 * median(part[int(0.99 * (len(part) - 1))] for part in whole) if whole else float("inf")
