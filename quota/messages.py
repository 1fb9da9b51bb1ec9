"""Messages and numbers that explain a decision. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from quota.policy import NamespaceQuota, Obstacle, Waiting
from quota.resources import HELD, HOURS_OF, Amounts, bare, hours, in_bytes, in_words

# Messages give a larger number of claims as a bound: else each start would rewrite the messages of thousands.
MOST_COUNTED = 100
_PLATFORM = " on the platform"
_ASK = "Ask for less, or an admin for more."


@dataclass(frozen=True)
class Verdict:
    """The decision on one claim.

    ``never``: it would not fit even if nothing else ran. ``why``: a message, empty if admitted. ``numbers``: for each
    resource that is short, {"needed", "limit", "held", "free"}. ``before``: the claims before it in its namespace.
    ``latest``: its latest start, if known.
    """

    admitted: bool
    never: bool = False
    why: str = ""
    numbers: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    before: int = 0
    latest: datetime | None = None


ADMITTED = Verdict(admitted=True)


def verdict(waiting: Waiting, namespace: NamespaceQuota, capacity: Mapping[str, float | None]) -> Verdict:
    """Return the verdict on a waiting claim."""
    never = waiting.obstacle is Obstacle.NEVER
    short = list(_shortages(waiting, namespace, capacity))
    latest = _moment(waiting.latest)
    parts = [_REASONS[waiting.obstacle](waiting, namespace, short), _place(waiting, latest)]
    return Verdict(
        admitted=False,
        never=never,
        why=" ".join(filter(None, parts)),
        numbers={item.resource: item.numbers() for item in short},
        before=waiting.before,
        latest=latest,
    )


# --- Shortages -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Shortage:
    resource: str
    needed: float
    limit: float
    free: float
    where: str

    def numbers(self) -> dict[str, float]:
        return numbers(self.needed, self.limit, self.free)


def numbers(needed: float, limit: float, free: float) -> dict[str, float]:
    """Return the numbers of a shortage for programs."""
    return {"needed": needed, "limit": limit, "held": limit - free, "free": max(0.0, free)}


def _shortages(
    waiting: Waiting, namespace: NamespaceQuota, capacity: Mapping[str, float | None]
) -> Iterator[_Shortage]:
    """Return the resources that are short, in their order: first those of the namespace, then of the platform."""
    if waiting.obstacle in (Obstacle.NEVER, Obstacle.BUDGET):
        yield from _budget_shortages(waiting, namespace)
    if waiting.obstacle is Obstacle.BUDGET:
        return
    never, asked = waiting.obstacle is Obstacle.NEVER, waiting.claim.amounts
    ceilings = {name: _ceiling(namespace, name) for name in HELD}
    places = (
        (f" in `{namespace.name}`", ceilings, waiting.namespace_free, Obstacle.LIMIT),
        (_PLATFORM, {name: capacity.get(name) for name in HELD}, waiting.platform_free, Obstacle.CAPACITY),
    )
    for where, bounds, free, obstacle in places:
        for name, bound in bounds.items():
            needed = asked.get(name, 0)
            if bound is None or not needed or waiting.obstacle not in (Obstacle.NEVER, obstacle):
                continue
            left = bound if never else free.get(name, math.inf)
            if needed > left:
                yield _Shortage(name, needed, bound, left, where)


def _ceiling(namespace: NamespaceQuota, name: str) -> float | None:
    limit = namespace.limits.get(name)
    return None if limit is None else limit + namespace.borrow.get(name, 0)


def _budget_shortages(waiting: Waiting, namespace: NamespaceQuota) -> Iterator[_Shortage]:
    never = waiting.obstacle is Obstacle.NEVER
    needed = hours(waiting.claim.amounts, waiting.claim.length)
    for name in HOURS_OF:
        budget, spent = namespace.budgets.get(name), 0.0 if never else namespace.spent.get(name, 0.0)
        if budget is not None and needed[name] > budget - spent:
            yield _Shortage(name, needed[name], budget, max(0.0, budget - spent), f" in `{namespace.name}`")


# --- Messages -------------------------------------------------------------------------------------------------------
def _never(waiting: Waiting, namespace: NamespaceQuota, short: list[_Shortage]) -> str:
    return " ".join(f"{_beyond(item)}, so it can never start. {_ASK}" for item in short)


def _beyond(item: _Shortage) -> str:
    limit = "the limit on the platform is " if item.where == _PLATFORM else f"the limit{item.where} is "
    return f"Needs {in_words(item.resource, item.needed)}; {limit}{in_words(item.resource, item.limit)}"


def _too_little(waiting: Waiting, namespace: NamespaceQuota, short: list[_Shortage]) -> str:
    parts = [_free(item) for item in short]
    if waiting.coming:
        parts.append("What others have borrowed is called back for it.")
    return " ".join(parts)


def _free(item: _Shortage) -> str:
    free, of, held = (bare(item.resource, amount) for amount in (item.free, item.limit, item.limit - item.free))
    needed = in_words(item.resource, item.needed)
    return f"Needs {needed}; {free} of {of} are free{item.where}: {held} are held by running jobs."


def _budget(waiting: Waiting, namespace: NamespaceQuota, short: list[_Shortage]) -> str:
    return " ".join(
        f"May use {in_words(item.resource, item.needed)} until its timeout; {bare(item.resource, item.free)} of "
        f"{bare(item.resource, item.limit)} are left this month{item.where}. Shorten the timeout, wait for the next "
        "month, or ask for more."
        for item in short
    )


def _turn(waiting: Waiting, namespace: NamespaceQuota, short: list[_Shortage]) -> str:
    return "There is room for it, but it would take that from a job that has waited longer."


def _behind(waiting: Waiting, namespace: NamespaceQuota, short: list[_Shortage]) -> str:
    return "Waiting for its turn."


_REASONS = {
    Obstacle.NEVER: _never,
    Obstacle.BUDGET: _budget,
    Obstacle.LIMIT: _too_little,
    Obstacle.CAPACITY: _too_little,
    Obstacle.TURN: _turn,
    Obstacle.BEHIND: _behind,
}


def _place(waiting: Waiting, latest: datetime | None) -> str:
    """Return the message about the number of claims before it and its latest start."""
    if waiting.obstacle is Obstacle.NEVER:
        return ""
    parts = []
    if waiting.before > MOST_COUNTED:
        parts.append(f"More than {MOST_COUNTED} jobs are before it.")
    elif waiting.before:
        parts.append("1 job is before it." if waiting.before == 1 else f"{waiting.before} jobs are before it.")
    if latest is not None:
        parts.append(f"It starts by {latest:%Y-%m-%d %H:%M} UTC, unless a job with precedence comes.")
    return " ".join(parts)


def _moment(seconds: float | None) -> datetime | None:
    """Round up to the next minute, so that the message does not change every second."""
    if seconds is None or not math.isfinite(seconds):
        return None
    return datetime.fromtimestamp(math.ceil(seconds / 60) * 60, UTC)


def free_in(amounts: Amounts, limits: Mapping[str, float | None]) -> dict[str, float | None]:
    """Return the amount left of each limit; None if unlimited."""
    return {name: None if limit is None else max(0.0, limit - amounts.get(name, 0)) for name, limit in limits.items()}


# --- Storage ---------------------------------------------------------------------------------------------------------
# By kind: the beginnings of the messages about its largest thing and about its sum.
_KEEPERS: Mapping[str, tuple[str, str]] = {
    "artifacts": ("The most is kept by the artifacts of `", "Artifacts keep"),
    "checkpoints": ("The most is kept by the checkpoints of `", "Checkpoints keep"),
    "streams": ("The most is kept by the log and the metrics of `", "Logs and metrics keep"),
    "code": ("The most is kept by the code of `", "Code keeps"),
    "datasets": ("The most is kept by the dataset `", "Datasets keep"),
}


@dataclass(frozen=True)
class Most:
    """The thing that uses most storage: its kind, name and bytes."""

    kind: str
    label: str
    size: int


def storage_full(namespace: str, needed: int, limit: float, kept: Mapping[str, int], most: Most | None) -> str:
    """Return the message for a namespace without enough storage: the usage by kind, and what to delete."""
    free = in_bytes(max(0.0, limit - sum(kept.values())))
    parts = [f"This needs {in_bytes(needed)} of storage; {free} of {in_bytes(limit)} are left in `{namespace}`."]
    parts += [f"{_KEEPERS[kind][1]} {in_bytes(size)}." for kind, size in sorted(kept.items(), key=_by_size) if size]
    if most is not None:
        parts.append(f"{_KEEPERS[most.kind][0]}{most.label}`: {in_bytes(most.size)}.")
    parts.append("Delete what nobody needs any more, or ask an admin for more.")
    return " ".join(parts)


def _by_size(pair: tuple[str, int]) -> tuple[int, str]:
    return -pair[1], pair[0]


def platform_storage_full(needed: int, limit: float, free: float) -> str:
    """Return the message for a platform without enough storage."""
    return (
        f"This needs {in_bytes(needed)} of storage; {in_bytes(max(0.0, free))} of {in_bytes(limit)} are left on the "
        "platform. Delete what nobody needs any more, and tell an admin."
    )
