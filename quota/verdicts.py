"""Messages and numbers that explain a decision. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from quota import messages
from quota.policy import NamespaceQuota, Obstacle, Waiting
from quota.resources import HELD, HOURS_OF, Amounts, bare, hours, in_bytes, in_words
from runtime.messages import Message, Template, paragraph

# Messages give a larger number of claims as a bound: else each start would rewrite the messages of thousands.
MOST_COUNTED = 100


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
        why=paragraph(*parts),
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
    namespace: str  # whose limit it is; empty: the platform's

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
        (namespace.name, ceilings, waiting.namespace_free, Obstacle.LIMIT),
        ("", {name: capacity.get(name) for name in HELD}, waiting.platform_free, Obstacle.CAPACITY),
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
            yield _Shortage(name, needed[name], budget, max(0.0, budget - spent), namespace.name)


# --- Messages -------------------------------------------------------------------------------------------------------
def _never(waiting: Waiting, namespace: NamespaceQuota, short: list[_Shortage]) -> str:
    ask = messages.REQUEST_LESS_OR_RAISE_LIMIT()
    return paragraph(*(text for item in short for text in (_never_fits(item), ask)))


def _never_fits(item: _Shortage) -> Message:
    needed, limit = in_words(item.resource, item.needed), in_words(item.resource, item.limit)
    if not item.namespace:
        return messages.PLATFORM_LIMIT_TOO_LOW(needed=needed, limit=limit)
    return messages.NAMESPACE_LIMIT_TOO_LOW(needed=needed, limit=limit, namespace=item.namespace)


def _too_little(waiting: Waiting, namespace: NamespaceQuota, short: list[_Shortage]) -> str:
    parts = [_free(item) for item in short]
    if waiting.coming:
        parts.append(messages.RECLAIMING_BORROWED_CAPACITY())
    return paragraph(*parts)


def _free(item: _Shortage) -> Message:
    free, of, held = (bare(item.resource, amount) for amount in (item.free, item.limit, item.limit - item.free))
    needed = in_words(item.resource, item.needed)
    if not item.namespace:
        return messages.PLATFORM_CAPACITY_SHORT(needed=needed, free=free, limit=of, held=held)
    return messages.NAMESPACE_QUOTA_SHORT(needed=needed, free=free, limit=of, held=held, namespace=item.namespace)


def _budget(waiting: Waiting, namespace: NamespaceQuota, short: list[_Shortage]) -> str:
    advice = messages.SHORTEN_TIMEOUT_OR_REQUEST_MORE()
    return paragraph(*(text for item in short for text in (_over_budget(item), advice)))


def _over_budget(item: _Shortage) -> Message:
    return messages.BUDGET_SHORT(
        needed=in_words(item.resource, item.needed),
        free=bare(item.resource, item.free),
        limit=bare(item.resource, item.limit),
        namespace=item.namespace,
    )


def _turn(waiting: Waiting, namespace: NamespaceQuota, short: list[_Shortage]) -> str:
    return messages.CAPACITY_HELD_FOR_EARLIER_JOB()


def _behind(waiting: Waiting, namespace: NamespaceQuota, short: list[_Shortage]) -> str:
    return messages.WAITING_IN_QUEUE()


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
        parts.append(messages.JOBS_BEFORE_MORE_THAN(count=MOST_COUNTED))
    elif waiting.before == 1:
        parts.append(messages.JOBS_BEFORE_ONE(count=1))
    elif waiting.before:
        parts.append(messages.JOBS_BEFORE(count=waiting.before))
    if latest is not None:
        parts.append(messages.LATEST_START(when=f"{latest:%Y-%m-%d %H:%M}"))
    return paragraph(*parts)


def _moment(seconds: float | None) -> datetime | None:
    """Round up to the next minute, so that the message does not change every second."""
    if seconds is None or not math.isfinite(seconds):
        return None
    return datetime.fromtimestamp(math.ceil(seconds / 60) * 60, UTC)


def free_in(amounts: Amounts, limits: Mapping[str, float | None]) -> dict[str, float | None]:
    """Return the amount left of each limit; None if unlimited."""
    return {name: None if limit is None else max(0.0, limit - amounts.get(name, 0)) for name, limit in limits.items()}


# --- Storage ---------------------------------------------------------------------------------------------------------
# By kind: the messages about its largest thing and about its sum.
_USERS: Mapping[str, tuple[Template, Template]] = {
    "artifacts": (messages.LARGEST_ARTIFACTS, messages.ARTIFACTS_USE),
    "checkpoints": (messages.LARGEST_CHECKPOINTS, messages.CHECKPOINTS_USE),
    "streams": (messages.LARGEST_LOG_AND_METRICS, messages.LOGS_AND_METRICS_USE),
    "code": (messages.LARGEST_CODE, messages.CODE_USES),
    "datasets": (messages.LARGEST_DATASET, messages.DATASETS_USE),
    "homes": (messages.LARGEST_HOME, messages.HOMES_USE),
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
    parts = [
        messages.NAMESPACE_STORAGE_FULL(needed=in_bytes(needed), free=free, limit=in_bytes(limit), namespace=namespace)
    ]
    parts += [_USERS[kind][1](amount=in_bytes(size)) for kind, size in sorted(kept.items(), key=_by_size) if size]
    if most is not None:
        parts.append(_USERS[most.kind][0](name=most.label, amount=in_bytes(most.size)))
    parts.append(messages.DELETE_OR_RAISE_LIMIT())
    return paragraph(*parts)


def _by_size(pair: tuple[str, int]) -> tuple[int, str]:
    return -pair[1], pair[0]


def platform_storage_full(needed: int, limit: float, free: float) -> str:
    """Return the message for a platform without enough storage."""
    needs = messages.PLATFORM_STORAGE_FULL(
        needed=in_bytes(needed), free=in_bytes(max(0.0, free)), limit=in_bytes(limit)
    )
    return paragraph(needs, messages.DELETE_AND_CONTACT_ADMIN())
