"""A job's states and the one table of its transitions. Pure."""

from __future__ import annotations

from enum import StrEnum


class JobState(StrEnum):
    QUEUED = "QUEUED"
    ADMITTED = "ADMITTED"
    BUILDING = "BUILDING"
    LAUNCHING = "LAUNCHING"
    REGISTERING = "REGISTERING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


TERMINAL = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED})
ACTIVE = frozenset(JobState) - TERMINAL
HOLDS_QUOTA = ACTIVE - {JobState.QUEUED}
