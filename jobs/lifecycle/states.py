"""The states of a job and of a replica, and the three named sets of job states. Nothing else lists states. Pure."""

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
# What people may still wish for: another number of replicas, a rehearsal.
CHANGEABLE = ACTIVE - {JobState.STOPPING}


class ReplicaState(StrEnum):
    """What is known of one replica, as last reported by its agent or observed by the backend."""

    WAITING = "waiting"
    STARTING = "starting"
    REGISTERED = "registered"
    EXITED = "exited"
    LOST = "lost"


ENDED = frozenset({ReplicaState.EXITED, ReplicaState.LOST})
