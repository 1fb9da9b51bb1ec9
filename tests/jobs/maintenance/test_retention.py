"""Retention removes the rows of ended jobs that are older than the settings keep, and nothing else."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pytest_django import Settings

from jobs.lifecycle.states import JobState
from jobs.maintenance import retention
from jobs.messages import jobs as messages
from jobs.models import Job, JobEvent, Retention, Transition
from jobs.models.streams import Block, MetricNames, Source
from jobs.streams import store
from portal.common.clock import now as wall_clock
from quota import ledger, storage
from quota.models import Kept, Kind, Reservation, Stretch
from rbac import retention as accounts
from rbac.models import ApiToken, Session
from tests.factories import make_attempt, make_job, make_namespace, make_token, make_user
from tests.jobs.streams.conftest import Writer

pytestmark = pytest.mark.django_db
NOW = wall_clock()


def days(number: float) -> timedelta:
    return timedelta(days=number)


@pytest.fixture(autouse=True)
def _ages(settings: Settings) -> None:
    settings.KEEP_STREAMS_DAYS, settings.KEEP_HISTORY_DAYS = 90.0, 365.0
    settings.KEEP_USAGE_DAYS = 400.0


def ended(age: float, **fields: Any) -> Job:
    """Return a job that ended ``age`` days ago, with a line, a point, a transition and an event."""
    finished = NOW - days(age)
    job = make_job(attempt=1, state=JobState.SUCCEEDED, finished=finished, idempotency_key=f"key-{age}", **fields)
    writer = Writer(make_attempt(job))
    writer.lines(1, 3)
    writer.points(1, 3)
    store.close(job.pk)
    Transition.objects.create(job=job, attempt=1, at=finished, state=JobState.SUCCEEDED)
    JobEvent.objects.create(job=job, attempt=1, at=finished, kind="left", text="gone")
    return job


def left(job: Job) -> dict[str, int]:
    """Count the rows of a job."""
    return {
        "blocks": Block.objects.filter(job=job).count(),
        "names": MetricNames.objects.filter(job=job).count(),
        "sources": Source.objects.filter(attempt__job=job).count(),
        "keys": Job.objects.filter(pk=job.pk).exclude(idempotency_key=None).count(),
        "transitions": Transition.objects.filter(job=job).count(),
        "events": JobEvent.objects.filter(job=job, kind="left").count(),
    }


ALL = {"blocks": 2, "names": 1, "sources": 2, "keys": 1, "transitions": 1, "events": 1}
WITHOUT_NUMBERS = ALL | {"sources": 0, "keys": 0}
WITHOUT_STREAMS = WITHOUT_NUMBERS | {"blocks": 0, "names": 0}
NOTHING = dict.fromkeys(ALL, 0)


@pytest.mark.invariant("Streams and records of ended jobs are deleted at the ages in the settings, and not earlier.")
@pytest.mark.parametrize(
    ("age", "rows"), [(6, ALL), (8, WITHOUT_NUMBERS), (91, WITHOUT_STREAMS), (366, NOTHING)], ids=str
)
def test_what_is_left_of_a_job_by_its_age(age: float, rows: dict[str, int]) -> None:
    job = ended(age)
    assert retention.prune(NOW)
    assert left(job) == rows


def test_after_three_years_the_tables_hold_only_the_rows_that_the_settings_keep() -> None:
    ages = range(6, 3 * 365, 60)
    for age in ages:
        ended(age)
    while not retention.prune(NOW):
        pass

    def younger(days: float) -> int:
        return sum(age <= days for age in ages)

    assert {
        "numbers": Source.objects.count(),
        "blocks": Block.objects.count(),
        "names": MetricNames.objects.count(),
        "transitions": Transition.objects.count(),
        "events": JobEvent.objects.filter(kind="left").count(),
        "said": JobEvent.objects.filter(kind="retention").count(),
    } == {
        "numbers": 2 * younger(7),
        "blocks": 2 * younger(90),
        "names": younger(90),
        "transitions": younger(365),
        "events": younger(365),
        "said": younger(365) - younger(90),
    }


def test_a_setting_of_0_keeps_for_ever(settings: Settings) -> None:
    settings.KEEP_STREAMS_DAYS = settings.KEEP_HISTORY_DAYS = 0.0
    job = ended(5000)
    retention.prune(NOW)
    assert left(job) == WITHOUT_NUMBERS


def test_a_job_that_runs_again_keeps_everything() -> None:
    job = ended(1000)
    Job.objects.filter(pk=job.pk).update(state=JobState.RUNNING)
    retention.prune(NOW)
    assert left(job) == ALL


def test_the_timeline_records_that_the_log_was_removed_and_the_storage_is_released() -> None:
    job = ended(91)
    storage.add(storage.StoredObject(job.namespace_id, Kind.STREAMS, str(job.pk), job.name), 500)
    retention.prune(NOW)
    assert JobEvent.objects.get(job=job, kind="retention").text == (messages.STREAMS_REMOVED(days=90))
    assert not Kept.objects.filter(subject=str(job.pk), size__gt=0).exists()


def test_jobs_that_ended_in_the_same_moment_are_all_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "BATCH", 2)
    jobs = [ended(91) for _ in range(5)] + [ended(92)]
    retention.prune(NOW, seconds=0)
    while not retention.prune(NOW, seconds=0):
        pass
    assert all(left(job) == WITHOUT_STREAMS for job in jobs)


def test_a_pass_without_time_goes_on_where_it_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "BATCH", 1)
    jobs = [ended(91 + number) for number in range(4)]
    passes = 1
    while not retention.prune(NOW, seconds=0):
        passes += 1
    assert passes == 4
    assert all(left(job) == WITHOUT_STREAMS for job in jobs)


def test_a_second_pass_reads_no_job_that_the_first_has_done() -> None:
    job = ended(91)
    retention.prune(NOW)
    assert Retention.objects.get(pk="streams").until == job.finished
    assert retention._end_of_batch(job.finished, NOW - days(90)) is None  # type: ignore[arg-type]


def test_a_crash_in_mid_batch_is_made_up_for(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [ended(91), ended(92)]
    remove, calls = retention._remove, 0

    def crashing(*given: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise RuntimeError("killed")
        remove(*given)

    monkeypatch.setattr(retention, "_remove", crashing)
    with pytest.raises(RuntimeError):
        retention.prune(NOW)
    monkeypatch.setattr(retention, "_remove", remove)
    retention.prune(NOW)
    assert all(left(job) == WITHOUT_STREAMS for job in jobs)


# --- Readers of removed rows -----------------------------------------------------------------------------------------
def test_pages_of_a_log_that_was_removed_come_to_an_end() -> None:
    job = ended(91)
    retention.prune(NOW)
    forwards = store.read_logs(job.pk)
    backwards = store.read_logs(job.pk, before=4)
    assert (forwards.lines, forwards.last, forwards.more) == ([], 3, False)
    assert (backwards.lines, backwards.more) == ([], False)


def test_a_retried_job_continues_the_numbers_after_the_removed_rows() -> None:
    job = ended(91)
    retention.prune(NOW)
    Writer(make_attempt(job, 2)).lines(1, 2)
    assert [line.seq for line in store.read_logs(job.pk).lines] == [4, 5]


# --- Usage and accounts ----------------------------------------------------------------------------------------------
def test_reservations_that_were_given_back_long_ago_are_removed_with_their_stretches() -> None:
    namespace = make_namespace("team")
    for age in (401, 399):
        ask = ledger.ReservationRequest(
            job=make_job(namespace).pk, attempt=1, amounts={"cpu": 1}, length=60.0, priority="normal", since=NOW
        )
        ledger.reserve(namespace, ask, now=NOW - days(age))
        ledger.release(job=ask.job, attempt=1, now=NOW - days(age))
    retention.prune(NOW)
    assert (Reservation.objects.count(), Stretch.objects.count()) == (1, 1)


def test_expired_sessions_and_tokens_are_removed() -> None:
    user = make_user("ada")
    for age, key in ((1, "old"), (-1, "new")):
        Session.objects.create(
            session_key=key, session_data="", expire_date=NOW - days(age), handle=key, user=user, created=NOW, seen=NOW
        )
    for age in (31, 29, -1):
        make_token(user, name=str(age), expires=NOW - days(age))
    accounts.prune(NOW)
    assert list(Session.objects.values_list("session_key", flat=True)) == ["new"]
    assert set(ApiToken.objects.values_list("name", flat=True)) == {"29", "-1"}
