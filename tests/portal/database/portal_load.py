"""Queries and writes of a portal with running jobs, on threads; each notes how long it took."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg

from tests.portal.database.large_installation import JOBS, RUNNING

_Link = psycopg.Connection[tuple[object, ...]]


def _list_jobs(link: _Link, draw: random.Random) -> None:
    rows = link.execute(
        "SELECT j.id, j.name, j.state, u.username FROM jobs_job j JOIN rbac_user u ON u.id = j.owner_id "
        "WHERE j.namespace_id = 1000 ORDER BY j.created DESC LIMIT 50"
    ).fetchall()
    assert len(rows) == 50


def _read_job(link: _Link, draw: random.Random) -> None:
    number = draw.randint(1, JOBS)
    rows = link.execute(
        "SELECT j.state, r.name FROM jobs_job j JOIN jobs_attempt a ON a.job_id = j.id "
        "JOIN jobs_replica r ON r.attempt_id = a.id WHERE j.id = md5(%s)::uuid",
        [f"job {number}"],
    ).fetchall()
    assert len(rows) == 2


def _move_job(link: _Link, draw: random.Random) -> None:
    """A change of state as the reconciler writes it: a row update and a transition."""
    job = f"job {draw.randint(JOBS - RUNNING + 1, JOBS)}"
    with link.transaction():
        link.execute("UPDATE jobs_job SET revision = revision + 1, changed = now() WHERE id = md5(%s)::uuid", [job])
        link.execute(
            "INSERT INTO jobs_transition (job_id, attempt, at, old, state, reason, why) "
            "VALUES (md5(%s)::uuid, 1, now(), 'RUNNING', 'RUNNING', '', '')",
            [job],
        )


def _ingest(link: _Link, draw: random.Random) -> None:
    """A batch of metric points as the ingest stores it."""
    job = f"job {draw.randint(JOBS - RUNNING + 1, JOBS)}"
    with link.transaction():
        link.execute(
            "WITH head AS (UPDATE jobs_streamhead SET last = last + 5, unsealed = unsealed + 1 "
            "WHERE job_id = md5(%s)::uuid AND kind = 'metrics' RETURNING job_id, last) "
            "INSERT INTO jobs_block (job_id, kind, lo, hi, payload) "
            "SELECT job_id, 'metrics', last - 4, last, '\\x00' FROM head",
            [job],
        )


_WORK: dict[str, Callable[[_Link, random.Random], None]] = {
    "list": _list_jobs,
    "read": _read_job,
    "move": _move_job,
    "ingest": _ingest,
}


@dataclass
class Load:
    """What the threads have done: the number of calls and the longest one in seconds, by kind; and what failed."""

    done: Counter[str] = field(default_factory=Counter)
    longest: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_WORK, 0.0))
    failed: list[str] = field(default_factory=list)

    def _work(self, url: str, kind: str, stop: threading.Event) -> None:
        draw = random.Random(kind)
        with psycopg.connect(url, autocommit=True) as link:
            while not stop.is_set():
                begun = time.monotonic()
                try:
                    _WORK[kind](link, draw)
                except (psycopg.Error, AssertionError) as error:
                    self.failed.append(f"{kind}: {error!r}")
                    return
                self.longest[kind] = max(self.longest[kind], time.monotonic() - begun)
                self.done[kind] += 1
                # At most 200 calls a second in all: the machine is not to be the limit.
                stop.wait(0.02)

    @contextmanager
    def running(self, url: str) -> Iterator[None]:
        """Run one thread of each kind inside the block."""
        stop = threading.Event()
        threads = [threading.Thread(target=self._work, args=(url, kind, stop), daemon=True) for kind in _WORK]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join(60)
