"""Concurrent insertion of equal rows: neither writer fails, and the database reports no violated constraint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import DatabaseError, connection
from django.db.models import Model

from jobs.elastic.controller import leader_lease
from jobs.log_follower import ingest as following
from jobs.models import Attempt, Elastic, Job
from jobs.models.streams import FollowedLog, Source, StreamHead
from jobs.services import replica_reports
from jobs.streams import store
from portal.common.clock import now
from portal.common.rows import ensure
from quota import storage
from quota.models import Kept, Kind, Stored
from tests.factories import make_attempt, make_job

pytestmark = pytest.mark.django_db


class Rival:
    """Insert the same row just before the first insertion into the table of ``model``; count failed statements."""

    def __init__(self, model: type[Model], **fields: Any) -> None:
        self._table, self._model, self._fields = model._meta.db_table, model, fields
        self.came = False
        self.failed = 0

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if not self.came and sql.startswith("INSERT") and f'INTO "{self._table}"' in sql.replace("OR IGNORE ", ""):
            self.came = True
            self._model._default_manager.create(**self._fields)
        try:
            return execute(sql, params, many, context)
        except DatabaseError:
            self.failed += 1
            raise


Act = Callable[[Attempt], object]


def _lines(attempt: Attempt) -> int:
    return store.append_logs(
        job_id=attempt.job_id, attempt=attempt, replica="trainer-0", first=1, lines=[(1.0, "stdout", "hello")]
    )


def _thing(attempt: Attempt) -> storage.StoredObject:
    return storage.StoredObject(attempt.job.namespace_id, Kind.STREAMS, str(attempt.job_id))


RACES: dict[str, tuple[type[Model], Callable[[Attempt], dict[str, Any]], Act]] = {
    "head": (StreamHead, lambda it: {"job": it.job, "kind": "logs"}, _lines),
    "closing head": (StreamHead, lambda it: {"job": it.job, "kind": "logs"}, lambda it: store.close(it.job_id)),
    "source of events": (
        Source,
        lambda it: {"attempt": it, "replica": "trainer-0", "kind": "events"},
        lambda it: replica_reports.record_events(it, replica="trainer-0", first=1, events=[(1.0, "left", "gone")]),
    ),
    "followed log": (
        FollowedLog,
        lambda it: {"attempt": it, "replica": "trainer-0"},
        lambda it: following.followed(it, "trainer-0"),
    ),
    "stored bytes": (
        Kept,
        lambda it: {"namespace": it.job.namespace, "kind": "streams", "subject": str(it.job_id), "changed": now()},
        lambda it: storage.add(_thing(it), 5),
    ),
    "sum of stored bytes": (
        Stored,
        lambda it: {"namespace": it.job.namespace, "kind": "streams"},
        lambda it: storage.add(_thing(it), 5),
    ),
    "elastic controller": (Elastic, lambda it: {"pk": 1}, lambda it: leader_lease.lead("somebody", now())),
}


@pytest.mark.parametrize("race", RACES)
def test_a_row_that_a_rival_inserts_first_fails_no_statement(race: str) -> None:
    model, fields, act = RACES[race]
    attempt = make_attempt(make_job(attempt=1))
    rival = Rival(model, **fields(attempt))
    with connection.execute_wrapper(rival):
        act(attempt)
    assert (rival.came, rival.failed) == (True, 0)
    assert model._default_manager.count() >= 1


def test_an_existing_row_stays_unchanged(job: Job) -> None:
    ensure(StreamHead, job=job, kind="logs", last=7)
    ensure(StreamHead, job=job, kind="logs", last=9)
    assert StreamHead.objects.get(job=job).last == 7


@pytest.fixture
def job(db: None) -> Job:
    return make_job(attempt=1)
