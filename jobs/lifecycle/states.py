"""States of jobs and replicas, and the named sets of them. Every list of states is defined here. Pure."""

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
# States in which users can still change the number of replicas or start fault injection.
CHANGEABLE = ACTIVE - {JobState.STOPPING}


class ReplicaState(StrEnum):
    """State of a replica, as last reported by its agent or observed by the backend."""

    WAITING = "waiting"
    STARTING = "starting"
    REGISTERED = "registered"
    EXITED = "exited"
    LOST = "lost"


ENDED = frozenset({ReplicaState.EXITED, ReplicaState.LOST})
