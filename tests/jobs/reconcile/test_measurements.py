"""Metrics of the changes of jobs' states."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from jobs.lifecycle.reasons import Reason
from jobs.lifecycle.state_machine import BuildFailed, Built, CancelRequested, Event, JobView
from jobs.lifecycle.states import JobState
from jobs.reconcile import measurements
from portal.common.monitoring import metrics

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
BUILDING = JobView("j1", JobState.BUILDING, 1, MOMENT)


def builds(result: str) -> float:
    return float(metrics.BUILD_SECONDS.labels(result)._sum.get())


def test_a_new_state_is_counted() -> None:
    counter = metrics.JOB_TRANSITIONS.labels(JobState.LAUNCHING)
    before = counter._value.get()
    measurements.note(BUILDING, Built(1, ""), replace(BUILDING, state=JobState.LAUNCHING), MOMENT)
    assert counter._value.get() == before + 1


def test_an_end_is_counted_by_state_and_reason() -> None:
    counter = metrics.JOBS_ENDED.labels(JobState.CANCELLED, Reason.CANCELLED)
    before = counter._value.get()
    stopping = replace(BUILDING, state=JobState.STOPPING, reason=Reason.CANCELLED)
    measurements.note(stopping, CancelRequested(1, ""), replace(stopping, state=JobState.CANCELLED), MOMENT)
    assert counter._value.get() == before + 1


@pytest.mark.parametrize(
    ("event", "state", "result"),
    [
        (Built(1, ""), JobState.LAUNCHING, "built"),
        (BuildFailed(1, ""), JobState.STOPPING, "failed"),
        (CancelRequested(1, ""), JobState.STOPPING, "interrupted"),
    ],
)
def test_a_build_is_measured_by_its_result(event: Event, state: JobState, result: str) -> None:
    before = builds(result)
    measurements.note(BUILDING, event, replace(BUILDING, state=state), MOMENT + timedelta(seconds=42))
    assert builds(result) == before + 42


def test_a_message_without_a_new_state_is_not_counted() -> None:
    counter = metrics.JOB_TRANSITIONS.labels(JobState.BUILDING)
    before = counter._value.get()
    measurements.note(BUILDING, Built(1, ""), replace(BUILDING, why="waits"), MOMENT)
    assert counter._value.get() == before
