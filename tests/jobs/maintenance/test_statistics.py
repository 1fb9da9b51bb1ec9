"""Gauges of jobs and streams."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pytest_django import DjangoAssertNumQueries

from jobs.lifecycle.states import JobState
from jobs.maintenance.statistics import EVERY, Statistics, jobs_by_state
from jobs.models import Job
from jobs.models.streams import StreamHead
from portal.common.monitoring import metrics
from tests.factories import make_job

pytestmark = pytest.mark.django_db
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


def job_in(state: JobState, *, since: timedelta = timedelta()) -> Job:
    job = make_job()
    Job.objects.filter(pk=job.pk).update(state=state, changed=MOMENT - since)
    return job


def gauge(state: JobState) -> float:
    return float(metrics.JOBS.labels(state)._value.get())


def age_of_queue() -> float:
    ((_, _, value, *_),) = metrics.OLDEST_QUEUED._child_samples()
    return float(value)


def counted() -> Statistics:
    made = Statistics(clock=lambda: MOMENT)
    made.when_due(MOMENT)
    return made


def test_active_jobs_are_counted_by_state() -> None:
    for state in (JobState.QUEUED, JobState.QUEUED, JobState.RUNNING, JobState.SUCCEEDED):
        job_in(state)
    counted()
    assert [gauge(state) for state in (JobState.QUEUED, JobState.RUNNING, JobState.STOPPING)] == [2, 1, 0]


def test_ended_jobs_are_not_read() -> None:
    job_in(JobState.FAILED)
    assert jobs_by_state() == {}


def test_a_state_without_jobs_goes_back_to_zero() -> None:
    job = job_in(JobState.RUNNING)
    statistics = counted()
    Job.objects.filter(pk=job.pk).update(state=JobState.STOPPING)
    statistics.when_due(MOMENT + EVERY)
    assert gauge(JobState.RUNNING) == 0


def test_the_age_of_the_queue_is_that_of_the_job_that_waits_longest() -> None:
    for minutes in (1, 30, 5):
        job_in(JobState.QUEUED, since=timedelta(minutes=minutes))
    job_in(JobState.RUNNING, since=timedelta(hours=9))
    statistics = counted()
    assert age_of_queue() == 30 * 60
    assert statistics


def test_an_empty_queue_has_no_age() -> None:
    statistics = counted()
    assert age_of_queue() == 0
    assert statistics


def test_unmerged_blocks_of_all_streams_are_added() -> None:
    for number in (3, 4, 0):
        StreamHead.objects.create(job=make_job(), kind="logs", unsealed=number)
    counted()
    assert metrics.UNSEALED_BLOCKS._value.get() == 7


def test_a_count_takes_two_queries_however_many_jobs_there_are(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    for _ in range(5):
        job_in(JobState.QUEUED)
    with django_assert_num_queries(2):
        counted()


def test_nothing_is_counted_again_before_it_is_due(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    statistics = counted()
    with django_assert_num_queries(0):
        statistics.when_due(MOMENT + EVERY - timedelta(seconds=1))
