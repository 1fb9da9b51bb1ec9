"""Messages that explain a decision about the trainers of a job. Pure."""

from __future__ import annotations

# The beneficiary where other jobs were admitted before there was capacity for them.
OTHERS = "others that have begun"


def trainers(count: int) -> str:
    return "1 trainer" if count == 1 else f"{count} trainers"


def starts(count: int) -> str:
    return f"Starts with {trainers(count)}."


def capacity_is_freed(stopping: int) -> str:
    if not stopping:
        return "Waiting for room that is coming free."
    return f"Room is being made: {trainers(stopping)} of other jobs stop for it."


def no_capacity(least: int) -> str:
    return (
        f"Waiting for room: {trainers(least)} and what else it begins with do not fit, even with others at their least."
    )


def behind(key: str) -> str:
    return f"Waiting: `{key}` is before it in the queue, and this would keep the capacity from it."


def grows(before: int, after: int) -> str:
    return f"Grows from {before} to {trainers(after)}: there is room."


def will_grow(before: int, after: int) -> str:
    return f"Grows from {before} to {trainers(after)} as soon as others have made room."


def shrinks(before: int, after: int, beneficiary: str) -> str:
    return f"Shrinks from {before} to {trainers(after)}: room for {beneficiary}."


def bounded(before: int, after: int) -> str:
    return f"Shrinks from {before} to {trainers(after)}: more are not allowed, or were measured to be of no use."


def stops(beneficiary: str) -> str:
    return f"Stops and goes back to the queue: room for {beneficiary}, which has a higher priority."


def full(count: int) -> str:
    return f"Has all {trainers(count)} that it may have."


def useless(count: int) -> str:
    return f"Keeps {trainers(count)}: more were measured to be of no use."


def resting(count: int) -> str:
    return f"Keeps {trainers(count)}: their number changed a moment ago."


def cramped(count: int) -> str:
    return f"Keeps {trainers(count)}: there is no room for more."
