"""Messages that explain a decision about the trainers of a job. Pure."""

from __future__ import annotations

from jobs.messages import elastic as elastic_messages
from jobs.messages import jobs as job_messages

# The beneficiary where other jobs were admitted before there was capacity for them.
OTHERS = elastic_messages.OTHER_STARTED_WORKLOADS()


def trainers(count: int) -> str:
    return "1 trainer" if count == 1 else job_messages.TRAINER_COUNT(count=count)


def starts(count: int) -> str:
    return elastic_messages.STARTS_WITH(trainers=trainers(count))


def capacity_is_freed(stopping: int) -> str:
    if not stopping:
        return elastic_messages.WAITING_FOR_RELEASED_CAPACITY()
    return elastic_messages.FREEING_CAPACITY(trainers=trainers(stopping))


def no_capacity(least: int) -> str:
    return elastic_messages.NO_CAPACITY(trainers=trainers(least))


def behind(key: str) -> str:
    return elastic_messages.BEHIND_IN_QUEUE(job=f"`{key}`")


def grows(before: int, after: int) -> str:
    return elastic_messages.SCALES_UP(before=before, trainers=trainers(after))


def will_grow(before: int, after: int) -> str:
    return elastic_messages.SCALES_UP_LATER(before=before, trainers=trainers(after))


def shrinks(before: int, after: int, beneficiary: str) -> str:
    return elastic_messages.SCALES_DOWN_FOR_OTHERS(before=before, trainers=trainers(after), beneficiary=beneficiary)


def bounded(before: int, after: int) -> str:
    return elastic_messages.SCALES_DOWN_TO_BOUND(before=before, trainers=trainers(after))


def stops(beneficiary: str) -> str:
    return elastic_messages.PREEMPTED(beneficiary=beneficiary)


def full(count: int) -> str:
    return elastic_messages.KEEPS_MAXIMUM(trainers=trainers(count))


def useless(count: int) -> str:
    return elastic_messages.KEEPS_NO_BENEFIT(trainers=trainers(count))


def resting(count: int) -> str:
    return elastic_messages.KEEPS_AFTER_CHANGE(trainers=trainers(count))


def cramped(count: int) -> str:
    return elastic_messages.KEEPS_NO_CAPACITY(trainers=trainers(count))
