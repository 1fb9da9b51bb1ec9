"""Metrics of the changes of jobs' states."""

from __future__ import annotations

from datetime import datetime

from jobs.lifecycle.state_machine import BuildFailed, Built, Event, JobView
from jobs.lifecycle.states import TERMINAL, JobState
from portal.common.monitoring import metrics


def note(before: JobView, event: Event, after: JobView, now: datetime) -> None:
    """Count a step that was written, and measure a build that ended with it."""
    if after.state is before.state:
        return
    metrics.JOB_TRANSITIONS.labels(after.state).inc()
    if after.state in TERMINAL:
        metrics.JOBS_ENDED.labels(after.state, after.reason or metrics.OTHER).inc()
    if before.state is JobState.BUILDING:
        metrics.BUILD_SECONDS.labels(_result(event)).observe(max(0.0, (now - before.changed).total_seconds()))


def _result(event: Event) -> str:
    if isinstance(event, Built):
        return "built"
    return "failed" if isinstance(event, BuildFailed) else "interrupted"
