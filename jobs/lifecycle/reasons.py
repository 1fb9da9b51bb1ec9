"""Reasons for the end of an attempt: one table of the final state, the retry rule and the message. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from jobs.lifecycle.states import JobState
from jobs.messages import jobs as messages
from jobs.messages import stalls as stall_messages


class Reason(StrEnum):
    """Reason why an attempt stops. The first group is caused by users and their code, the second by the platform."""

    COMPLETED = "completed"
    CANCELLED = "cancelled"
    USER_ERROR = "user_error"
    OUT_OF_MEMORY = "out_of_memory"
    DEADLINE = "deadline"
    STALLED = "stalled"
    REGISTRATION_TIMEOUT = "registration_timeout"
    BUILD_FAILED = "build_failed"

    KILLED = "killed"
    LAUNCH_FAILED = "launch_failed"
    LAUNCH_REFUSED = "launch_refused"
    REPLICA_LOST = "replica_lost"
    VALUES_LOST = "values_lost"
    LOST = "lost"
    INTERRUPTED = "interrupted"
    PREEMPTED = "preempted"


class Retry(StrEnum):
    """Retry rule of a reason."""

    NEVER = "never"
    BUDGET = "budget"  # as often as the specification's ``retries`` allows, all such reasons together
    BOUNDED = "bounded"  # at most ``LIMIT_OF_BOUNDED`` times for this reason, independent of ``retries``
    ALWAYS = "always"  # caused by the platform; uses none of the user's retries


LIMIT_OF_BOUNDED = 3


@dataclass(frozen=True)
class Rule:
    """Consequences of a reason. ``message`` is used when the event has no message of its own."""

    final: JobState
    retry: Retry
    message: str


RULES: Mapping[Reason, Rule] = {
    Reason.COMPLETED: Rule(JobState.SUCCEEDED, Retry.NEVER, messages.COMPLETED()),
    Reason.CANCELLED: Rule(JobState.CANCELLED, Retry.NEVER, messages.CANCELLED()),
    Reason.USER_ERROR: Rule(JobState.FAILED, Retry.BUDGET, messages.SCRIPT_FAILED()),
    Reason.OUT_OF_MEMORY: Rule(JobState.FAILED, Retry.BUDGET, messages.MEMORY_LIMIT_EXCEEDED()),
    Reason.DEADLINE: Rule(JobState.FAILED, Retry.NEVER, messages.TIMEOUT_EXCEEDED()),
    Reason.STALLED: Rule(JobState.FAILED, Retry.BUDGET, stall_messages.ATTEMPT_STALLED()),
    Reason.REGISTRATION_TIMEOUT: Rule(JobState.FAILED, Retry.BUDGET, messages.REGISTRATION_TIMED_OUT()),
    Reason.BUILD_FAILED: Rule(JobState.FAILED, Retry.NEVER, messages.REQUIREMENTS_NOT_INSTALLED_2()),
    Reason.KILLED: Rule(JobState.FAILED, Retry.BUDGET, messages.TOO_FEW_TRAINERS()),
    Reason.LAUNCH_FAILED: Rule(JobState.FAILED, Retry.BUDGET, messages.REPLICAS_NOT_STARTED()),
    Reason.LAUNCH_REFUSED: Rule(JobState.FAILED, Retry.NEVER, messages.LAUNCH_REFUSED()),
    Reason.REPLICA_LOST: Rule(JobState.FAILED, Retry.BUDGET, messages.MASTER_OR_PSERVER_ENDED()),
    Reason.VALUES_LOST: Rule(JobState.FAILED, Retry.BOUNDED, messages.VALUES_LOST_WITH_ALL_PROCESSES()),
    Reason.LOST: Rule(JobState.FAILED, Retry.BOUNDED, messages.ALL_PROCESSES_LOST()),
    Reason.INTERRUPTED: Rule(JobState.FAILED, Retry.ALWAYS, messages.PORTAL_STOPPED_DURING_JOB()),
    Reason.PREEMPTED: Rule(JobState.FAILED, Retry.ALWAYS, messages.CAPACITY_RECLAIMED()),
}


def retries_left(reason: Reason, budget: int, requeues: Mapping[str, int]) -> int | None:
    """Return how many more attempts the reason allows; None: no limit.

    ``budget`` is the specification's ``retries``; ``requeues`` counts, by reason, the attempts that were retried.
    """
    match RULES[reason].retry:
        case Retry.ALWAYS:
            return None
        case Retry.BOUNDED:
            return max(0, LIMIT_OF_BOUNDED - requeues.get(reason, 0))
        case Retry.BUDGET:
            spent = sum(count for name, count in requeues.items() if RULES[Reason(name)].retry is Retry.BUDGET)
            return max(0, budget - spent)
        case _:
            return 0
