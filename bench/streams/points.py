"""S3: metric points stored per second, on SQLite and PostgreSQL: by the store alone, and through the ingest endpoint.

The store receives blocks of 1,000 points, each committed separately, as columns. The peer is a table with a row per
point, filled by the ORM's ``bulk_create`` with as many rows at once; the two take turns. The endpoint is that of one
web process, to which two replicas of a job send batches whose JSON was encoded before the clock starts.

``python -m bench.streams.points FOLDER [URL]`` measures on one database and prints JSON.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench.environment import servers, stage
from bench.report import Row, at_least, missed
from bench.scale import scale
from bench.streams.ingest import Sender

ROUNDS = 5
BLOCK, BLOCKS = 1_000, scale(500, 5)
PEER_BLOCKS = scale(20, 2)
BATCH, BATCHES = 5_000, scale(20, 2)
REPLICAS = ("trainer-0", "trainer-1")
STORE_GOALS = {"SQLite": 2_000_000.0, "PostgreSQL": 500_000.0}
INGEST_GOAL = 100_000.0


def measure() -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="regatta-bench-") as scratch:
        folder = Path(scratch)
        yield from _rows("SQLite", stage.child("streams.points", str(folder / "sqlite")))
        try:
            with servers.postgres(folder) as url:
                yield from _rows("PostgreSQL", stage.child("streams.points", str(folder / "postgresql"), url))
        except servers.Absent as error:
            yield missed("S3", "points/s on PostgreSQL", f">= {STORE_GOALS['PostgreSQL']:g}", str(error))


def _rows(database: str, found: dict[str, Any]) -> Iterator[Row]:
    goal, peer = STORE_GOALS[database], found["peer"]
    case = f"points/s, store alone, {database}; peer: bulk_create"
    yield Row("S3", case, found["store"], f">= {goal:,.0f}", found["store"] >= goal, peer, found["store"] / peer)
    yield at_least("S3", f"points/s through the ingest endpoint, {database}", found["ingest"], INGEST_GOAL)


# --- One database ----------------------------------------------------------------------------------------------------
def _main(folder: Path, url: str = "") -> None:
    folder.mkdir()
    stage.open_database(folder, url)
    from django.db import connection

    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA synchronous")
            print(f"SQLite, synchronous = {cursor.fetchone()[0]}", file=sys.stderr)
    store, peer = _Store(), _Table()
    rounds = [(store.points_a_second(), peer.points_a_second()) for _ in range(ROUNDS)]
    ours, theirs = (median(rates) for rates in zip(*rounds, strict=True))
    connection.close()
    print(json.dumps({"store": ours, "peer": theirs, "ingest": _through_the_endpoint(folder)}))


class _Store:
    def __init__(self) -> None:
        self._attempt = stage.job().attempt
        self._last = 0

    def points_a_second(self) -> float:
        from jobs.streams import store
        from jobs.streams.block_codec import Points, WriterId

        writer = WriterId(1, "trainer-0")
        blocks = [
            Points.from_rows(_points(self._last + start, BLOCK), writer) for start in range(0, BLOCK * BLOCKS, BLOCK)
        ]
        begun = time.perf_counter()
        for block in blocks:
            self._last = store.append_points(
                job_id=self._attempt.job_id,
                attempt=self._attempt,
                replica="trainer-0",
                first=self._last + 1,
                points=block,
            )
        return BLOCK * BLOCKS / (time.perf_counter() - begun)


class _Table:
    """Table with a row for each point."""

    def __init__(self) -> None:
        from django.db import connection, models

        fields: dict[str, Any] = {
            "job": models.UUIDField(),
            "replica": models.CharField(max_length=63),
            "time": models.FloatField(),
            "step": models.FloatField(),
            "key": models.CharField(max_length=250),
            "value": models.FloatField(),
            "Meta": type("Meta", (), {"app_label": "jobs", "indexes": [models.Index(fields=["job", "key", "step"])]}),
        }
        self._model: Any = type("BenchPoint", (models.Model,), {**fields, "__module__": __name__})
        with connection.schema_editor() as editor:
            editor.create_model(self._model)

    def points_a_second(self) -> float:
        job = "0" * 32
        begun = time.perf_counter()
        for block in range(PEER_BLOCKS):
            self._model.objects.bulk_create(
                self._model(job=job, replica="trainer-0", time=at, step=step, key=key, value=value)
                for at, step, key, value in _points(block * BLOCK, BLOCK)
            )
        return BLOCK * PEER_BLOCKS / (time.perf_counter() - begun)


def _through_the_endpoint(folder: Path) -> float:
    """Return points per second, the median of rounds."""
    job = stage.job(REPLICAS)
    with stage.web(folder) as address:
        senders = [Sender(address, str(job.attempt.pk), job.agent, replica) for replica in REPLICAS]
        rates = []
        for number in range(ROUNDS + 1):
            bodies = [[_body(replica, number * BATCHES + turn) for turn in range(BATCHES)] for replica in REPLICAS]
            begun = time.perf_counter()
            threads = [
                threading.Thread(target=_send, args=(sender, own)) for sender, own in zip(senders, bodies, strict=True)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            rates.append(BATCH * BATCHES * len(REPLICAS) / (time.perf_counter() - begun))
    if (stored := _stored(job.id)) != BATCH * BATCHES * len(REPLICAS) * (ROUNDS + 1):
        raise RuntimeError(f"{stored} points are stored, which is not what was sent")
    return median(rates[1:])  # the first round opens connections


def _send(sender: Sender, bodies: Sequence[bytes]) -> None:
    for body in bodies:
        sender.post("metrics", body)


def _stored(job: str) -> int:
    from jobs.streams import store

    return store.head(job, "metrics").last


def _body(replica: str, number: int) -> bytes:
    rows = _points(number * BATCH, BATCH)
    return json.dumps({"replica": replica, "first": number * BATCH + 1, "points": rows}).encode()


def _points(start: int, count: int) -> list[tuple[float, float, str, float]]:
    """Return cost and accuracy in turn, as a training reports them."""
    return [
        (1.7e9 + number / 100, float(number // 2), ("cost", "accuracy")[number % 2], 1 / (number + 1))
        for number in range(start, start + count)
    ]


if __name__ == "__main__":
    _main(Path(sys.argv[1]), *sys.argv[2:])
