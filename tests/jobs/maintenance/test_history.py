"""The history of an active job is bounded, keeps the rows that decisions need, and records that it was cut."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import Any

import pytest

from jobs.elastic.controller import observer
from jobs.lifecycle import replica_facts, throughput
from jobs.lifecycle.states import JobState
from jobs.maintenance import history, retention
from jobs.messages import jobs as messages
from jobs.models import Job, JobEvent, Replica, Scaling, Transition
from jobs.selectors import timeline
from jobs.services import replica_reports
from portal.common.clock import now as wall_clock
from tests.factories import make_attempt, make_job

pytestmark = pytest.mark.django_db
NOW = wall_clock()
MOST = 10


@pytest.fixture(autouse=True)
def _small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {table: bound._replace(most=MOST) for table, bound in history.BOUNDS.items()}
    monkeypatch.setattr(history, "BOUNDS", small)


@pytest.fixture
def job() -> Job:
    return make_job(attempt=2, state=JobState.RUNNING)


def at(second: float) -> datetime:
    return NOW + timedelta(seconds=second)


def happen(job: Job, second: float, kind: str = "note", replica: str = "", attempt: int = 2) -> JobEvent:
    return JobEvent.objects.create(
        job=job, attempt=attempt, at=at(second), replica=replica, kind=kind, text=f"{second}"
    )


def trim() -> None:
    assert history.trim(math.inf)


def kinds(job: Job) -> list[str]:
    return list(JobEvent.objects.filter(job=job).order_by("at", "pk").values_list("kind", flat=True))


def test_a_job_that_runs_for_months_keeps_its_newest_events(job: Job) -> None:
    for second in range(3 * MOST):
        happen(job, second)
    trim()
    kept = JobEvent.objects.filter(job=job, kind="note").order_by("pk").values_list("text", flat=True)
    assert list(kept) == [str(second) for second in range(2 * MOST, 3 * MOST)]


def test_the_timeline_begins_with_the_event_that_earlier_events_were_removed(job: Job) -> None:
    for second in range(2 * MOST):
        happen(job, second)
    trim()
    first, *_ = [entry for entry in timeline.page_of(job).entries if entry["time"] <= at(MOST).isoformat()][-1:]
    assert first["text"] == messages.EVENTS_TRIMMED(count=10)


def test_however_often_it_is_cut_one_event_records_it(job: Job) -> None:
    for second in range(5 * MOST):
        happen(job, second)
        if second % MOST == MOST - 1:
            trim()
    trim()
    trim()
    assert kinds(job).count(history.TRIMMED) == 1
    assert JobEvent.objects.filter(job=job).count() <= MOST + 1


@pytest.mark.parametrize("table", [Transition, Scaling])
def test_changes_of_state_and_of_size_keep_the_newest(job: Job, table: type[Any]) -> None:
    fields: dict[str, Any] = {Transition: {"state": "RUNNING"}, Scaling: {"before": 1, "after": 2, "automatic": True}}[
        table
    ]
    rows = [table.objects.create(job=job, attempt=2, at=at(second), **fields).pk for second in range(3 * MOST)]
    trim()
    assert list(table.objects.filter(job=job).order_by("pk").values_list("pk", flat=True)) == rows[-MOST:]


def test_the_timeline_records_that_changes_of_state_were_removed(job: Job) -> None:
    for second in range(2 * MOST):
        Transition.objects.create(job=job, attempt=2, at=at(second), state="RUNNING")
    trim()
    assert kinds(job) == [history.TRIMMED_STATES]


def test_the_loss_of_a_replica_is_kept_for_the_event_of_its_return(job: Job) -> None:
    attempt = make_attempt(job, 2)
    row = Replica.objects.create(attempt=attempt, name="pserver-0", role="pserver", index=0)
    happen(job, 0, "registered", "pserver-0")
    happen(job, 1, "exited", "pserver-0")
    for second in range(2, 3 * MOST):
        happen(job, second)
    before = replica_reports._losses(row)
    trim()
    assert replica_reports._losses(row) == before == [(at(1), "exited")]
    assert "exited" in replica_facts.LOSSES


def test_the_last_checkpoint_is_kept(job: Job) -> None:
    happen(job, 0, "checkpoint")
    happen(job, 1, "checkpoint")
    for second in range(2, 3 * MOST):
        happen(job, second)
    before = observer._checkpoints([job])
    trim()
    assert observer._checkpoints([job]) == before == {job.pk: at(1)}
    assert kinds(job).count("checkpoint") == 1


def test_the_number_at_work_is_right_from_the_cut_on(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    for index in range(3):
        happen(job, index, "registered", f"trainer-{index}")
    happen(job, 3, "exited", "trainer-2")
    for second in range(4, 3 * MOST):
        happen(job, second)
    happen(job, 3 * MOST, "registered", "trainer-3")
    trim()
    found: list[throughput.Number] = []
    monkeypatch.setattr(throughput, "by_trainers", lambda rates, numbers, now: found.extend(numbers) or {})
    observer._speeds(job, NOW)
    cut = JobEvent.objects.get(job=job, kind=history.TRIMMED).at
    assert [(each.since, each.trainers) for each in found] == [(cut.timestamp(), 2), (at(3 * MOST).timestamp(), 3)]


def test_the_last_change_of_the_number_is_found_among_many(job: Job) -> None:
    for second in range(3 * MOST):
        Scaling.objects.create(job=job, attempt=2, at=at(second), before=1, after=second, automatic=True)
    trim()
    assert observer._scalings([job])[job.pk].after == 3 * MOST - 1


def test_a_change_of_an_earlier_attempt_is_none_of_this_one(job: Job) -> None:
    Scaling.objects.create(job=job, attempt=1, at=NOW, before=1, after=2, automatic=True)
    assert observer._scalings([job]) == {}


def test_of_an_earlier_attempt_nothing_is_needed(job: Job) -> None:
    happen(job, 0, "registered", "trainer-0", attempt=1)
    for second in range(1, 3 * MOST):
        happen(job, second)
    trim()
    assert "registered" not in kinds(job)


def test_an_ended_job_keeps_its_history_until_it_is_old() -> None:
    job = make_job(attempt=2, state=JobState.SUCCEEDED, finished=NOW)
    for second in range(3 * MOST):
        happen(job, second)
    trim()
    assert JobEvent.objects.filter(job=job).count() == 3 * MOST


def test_a_pass_without_time_goes_on_with_the_next(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "_BATCH", 4)
    for second in range(3 * MOST):
        happen(job, second)
    passes = 1
    while not retention.prune(NOW, seconds=0):
        passes += 1
    assert passes > 2
    assert JobEvent.objects.filter(job=job, kind="note").count() <= MOST
