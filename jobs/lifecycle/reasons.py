"""Reasons for the end of an attempt: one table of the final state, the retry rule and the message. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from jobs.lifecycle.states import JobState


class Reason(StrEnum):
    """Reason why an attempt stops. The first group is caused by users and their code, the second by the platform."""

    COMPLETED = "completed"
    CANCELLED = "cancelled"
    USER_ERROR = "user_error"
    OUT_OF_MEMORY = "out_of_memory"
    DEADLINE = "deadline"
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
    Reason.COMPLETED: Rule(JobState.SUCCEEDED, Retry.NEVER, "Training is complete."),
    Reason.CANCELLED: Rule(JobState.CANCELLED, Retry.NEVER, "The job was cancelled."),
    Reason.USER_ERROR: Rule(
        JobState.FAILED, Retry.BUDGET, "The training script failed. Its last lines in the log say where."
    ),
    Reason.OUT_OF_MEMORY: Rule(
        JobState.FAILED, Retry.BUDGET, "A replica used more memory than its limit. Ask for more memory for its role."
    ),
    Reason.DEADLINE: Rule(JobState.FAILED, Retry.NEVER, "The job ran longer than its timeout. Raise timeout."),
    Reason.REGISTRATION_TIMEOUT: Rule(
        JobState.FAILED, Retry.BUDGET, "A replica did not register in time. The script has to call dist.init() early."
    ),
    Reason.BUILD_FAILED: Rule(
        JobState.FAILED, Retry.NEVER, "The requirements could not be installed. The log of replica build says why."
    ),
    Reason.KILLED: Rule(JobState.FAILED, Retry.BUDGET, "Too few trainers were left to go on."),
    Reason.LAUNCH_FAILED: Rule(JobState.FAILED, Retry.BUDGET, "The replicas could not be started."),
    Reason.LAUNCH_REFUSED: Rule(JobState.FAILED, Retry.NEVER, "The replicas cannot be started as they were asked for."),
    Reason.REPLICA_LOST: Rule(
        JobState.FAILED, Retry.BUDGET, "The master or a parameter server ended before training was complete."
    ),
    Reason.VALUES_LOST: Rule(
        JobState.FAILED, Retry.BOUNDED, "The values of the parameters were lost with all processes that had them."
    ),
    Reason.LOST: Rule(JobState.FAILED, Retry.BOUNDED, "All processes of the attempt were gone."),
    Reason.INTERRUPTED: Rule(JobState.FAILED, Retry.ALWAYS, "The portal was stopped while the job ran."),
    Reason.PREEMPTED: Rule(JobState.FAILED, Retry.ALWAYS, "It ran on capacity that others had lent and need now."),
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
