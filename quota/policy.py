"""Admission policy: the claims that start now, those that wait and why, and recalls of borrowed capacity. Pure.

``outlook`` decides on the state of the whole platform at one moment. Times are unix seconds, amounts as in
``quota.models``.

* A namespace holds at most its limits. The amount that it may *borrow* comes on top, from idle capacity.
* Claims of one namespace are ordered by age. A priority is a head start in age: a later claim overtakes for that long
  and no longer. Between namespaces that wait for the same capacity, the one with the smallest dominant share goes
  first. A claim that has waited longer than ``Rules.patience`` goes before all others, the oldest first. So a claim is
  overtaken for a bounded time, and none starves.
* A claim within the limits of its namespace goes before all claims that borrow. If it lacks capacity that others have
  borrowed, just enough of that is recalled: low priorities first, then the most recent holdings, and none that began
  within ``Rules.shortest_run``. A recalled holding was above the limit of its namespace, and the claim that gets its
  capacity is not. So recalls never form a cycle.
* The first claim that lacks something keeps its place. A later claim may start before it (back-fill) if it takes none
  of the resources that the first waits for, or ends before the first could start. Ends are the timeouts of jobs, so
  back-filling never delays the latest start of the first claim.
* The monthly budget of hours is never overdrawn: a claim starts only if the budget covers its hours until its timeout.

The queue is EASY backfilling (Lifka 1995): the first waiting claim of the platform, and of each namespace, has a
reservation. The order of namespaces is dominant resource fairness (Ghodsi et al. 2011). Recalls are what YARN's
capacity scheduler and Kueue call reclaim: the owner of a quota preempts those that borrow it.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from quota.resources import HELD, HOURS_OF, Amounts, Limits, hours

Key = Hashable
_Vector = tuple[int, ...]
_INDICES = range(len(HELD))
# Cores are counted in thousandths, so that tenths of a core add up exactly.
_SCALE = tuple(1000 if resource == "cpu" else 1 for resource in HELD)
_SCALED = tuple(zip(HELD, _SCALE, strict=True))
_UNLIMITED = 1 << 100
_NOTHING: _Vector = (0,) * len(HELD)


@dataclass(frozen=True)
class Rules:
    """Parameters of the policy.

    ``head_start``: seconds of age that a priority is worth. ``patience``: seconds of waiting after which a claim goes
    before fair shares. ``shortest_run``: seconds that a borrower keeps its amounts at least. ``depth``: the number of
    claims behind the first waiting one that are considered for back-filling.
    """

    head_start: Mapping[str, float] = field(default_factory=lambda: {"low": 0.0, "normal": 3600.0, "high": 4 * 3600.0})
    patience: float = 4 * 3600.0
    shortest_run: float = 600.0
    depth: int = 100


RULES = Rules()


@dataclass(frozen=True)
class NamespaceQuota:
    """Limits and usage of a namespace.

    ``budgets`` are hours per month. ``spent`` are the hours used this month or reserved for running jobs.
    """

    name: str
    limits: Limits = field(default_factory=dict)
    borrow: Amounts = field(default_factory=dict)
    budgets: Limits = field(default_factory=dict)
    spent: Amounts = field(default_factory=dict)


@dataclass(frozen=True)
class Claim:
    """An attempt that has waited since ``since`` and would hold the amounts for at most ``length`` seconds."""

    key: Key
    namespace: str
    amounts: Amounts
    since: float
    length: float = 3600.0
    priority: str = "normal"


@dataclass(frozen=True)
class Holding:
    """An attempt that holds amounts from ``since`` until ``until`` at the latest.

    ``recalled``: its amounts have been recalled already.
    """

    key: Key
    namespace: str
    amounts: Amounts
    since: float
    until: float
    priority: str = "normal"
    recalled: bool = False


@dataclass(frozen=True)
class State:
    """The platform at one moment. A resource without a capacity is unlimited."""

    namespaces: Mapping[str, NamespaceQuota]
    capacity: Limits = field(default_factory=dict)
    held: Sequence[Holding] = ()
    waiting: Sequence[Claim] = ()


class Obstacle(StrEnum):
    """The reason why a claim is not granted now."""

    NEVER = "never"  # would not be granted even if nothing else ran
    BUDGET = "budget"  # the month's hours are used up or reserved for running jobs
    LIMIT = "limit"  # the namespace holds too much
    CAPACITY = "capacity"  # the platform has too little left
    TURN = "turn"  # it would take resources from a claim before it
    BEHIND = "behind"  # too many claims are before it for it to be considered


class Waiting(NamedTuple):
    """A claim that is not granted.

    ``before``: the number of claims that wait before it in its namespace. ``latest``: its latest start, unless a claim
    with precedence arrives; None if it is unknown. ``coming``: capacity is being recalled for it.
    """

    claim: Claim
    obstacle: Obstacle
    before: int
    namespace_left: _Vector
    platform_left: _Vector
    latest: float | None = None
    coming: bool = False

    @property
    def namespace_free(self) -> dict[str, float]:
        """Amounts left to its namespace at the time of the decision. Unlimited resources are left out."""
        return _plain(self.namespace_left)

    @property
    def platform_free(self) -> dict[str, float]:
        """Amounts left on the platform at that time. Unlimited resources are left out."""
        return _plain(self.platform_left)


@dataclass(frozen=True)
class Outlook:
    """The decisions on all claims.

    ``granted``: keys in the order of the decisions. ``waiting``: by key. ``recalled``: by the key of the holding that
    has to give back its amounts, the claim that gets them.
    """

    granted: tuple[Key, ...]
    waiting: Mapping[Key, Waiting]
    recalled: Mapping[Key, Claim]


def outlook(state: State, now: float, rules: Rules = RULES) -> Outlook:
    """Return all decisions for this moment. The same input gives the same output."""
    return _SchedulingCycle(state, now, rules).run()


# --- Amounts as vectors of whole numbers ------------------------------------------------------------------------------
def _needs(amounts: Amounts) -> _Vector:
    return _vector(tuple(amounts.items()))


# Cached because many claims have the same amounts.
@lru_cache(maxsize=4096)
def _vector(items: tuple[tuple[str, float], ...]) -> _Vector:
    amounts = dict(items)
    return tuple([round(amounts[name] * scale) if name in amounts else 0 for name, scale in _SCALED])


def _bounds(limits: Limits) -> _Vector:
    return tuple(_bound(limits.get(name), scale) for name, scale in zip(HELD, _SCALE, strict=True))


def _bound(limit: float | None, scale: int) -> int:
    return _UNLIMITED if limit is None else int(limit * scale + 1e-6)


def _plain(vector: Iterable[int]) -> dict[str, float]:
    """Convert a vector back to amounts. Unlimited resources are left out, overdrawn ones count as zero."""
    pairs = zip(HELD, _SCALE, vector, strict=True)
    return {name: max(0, value) / scale for name, scale, value in pairs if value < _UNLIMITED // 2}


def _within(need: _Vector, free: Sequence[int]) -> bool:
    """Whether ``need`` fits into ``free``.

    A resource of which nothing is needed always fits, even if more of it is held than a lowered limit allows.
    """
    for amount, left in zip(need, free, strict=True):  # noqa: SIM110  called more often than any other function
        if amount > left and amount:
            return False
    return True


def _add(to: list[int], amounts: _Vector, sign: int = 1) -> None:
    for i in _INDICES:
        to[i] += sign * amounts[i]


# --- One cycle over all claims ----------------------------------------------------------------------------------------
@dataclass
class _HeadReservation:
    """The reservation of the first waiting claim, which starts at ``until`` at the latest.

    ``spare`` and ``namespace_spare``: amounts that later claims may take beyond that time.
    """

    claim: Claim
    need: _Vector
    until: float
    spare: list[int]  # on the platform
    namespace_spare: list[int]

    def allows(self, need: _Vector, spare: Sequence[int], ends: float) -> bool:
        """Whether a claim that holds ``need`` until ``ends`` takes nothing from this reservation."""
        contested = (i for i in _INDICES if need[i] and self.need[i])
        return ends <= self.until or all(need[i] <= spare[i] for i in contested)


@dataclass
class _Account:
    """The account of one namespace during a cycle."""

    namespace: NamespaceQuota
    limit: _Vector
    ceiling: _Vector
    used: list[int]
    spent: dict[str, float]
    queue: list[Claim]
    # Whether any of its hours is limited.
    budgeted: bool
    at: int = 0
    reservation: _HeadReservation | None = None
    passed_over: int = 0
    waiting: int = 0

    # The needs of the head of the queue, computed once.
    need: _Vector = _NOTHING
    # Needs that have been found to fit if nothing else ran.
    possible: set[_Vector] = field(default_factory=set)

    @property
    def head(self) -> Claim:
        return self.queue[self.at]

    def left(self, bound: _Vector) -> list[int]:
        return [amount - used for amount, used in zip(bound, self.used, strict=True)]


class _SchedulingCycle:
    """The computation of one ``outlook``."""

    def __init__(self, state: State, now: float, rules: Rules) -> None:
        self._now, self._rules, self._held = now, rules, state.held
        self._capacity = _bounds(state.capacity)
        self._free = list(self._capacity)
        self._shared = [(i, amount) for i, amount in enumerate(self._capacity) if 0 < amount < _UNLIMITED]
        self._reservation: _HeadReservation | None = None
        self._granted: list[Key] = []
        self._waiting: dict[Key, Waiting] = {}
        self._recalled: dict[Key, Claim] = {}
        self._coming: set[Key] = set()
        self._accounts = {name: _account(namespace) for name, namespace in state.namespaces.items()}
        # (end, namespace, amounts) of all holdings and of the claims granted so far.
        self._ends: list[tuple[float, str, _Vector]] = []
        for holding in state.held:
            ends = now if holding.recalled else max(now, holding.until)
            self._hold(holding.namespace, _needs(holding.amounts), ends)
        for claim in state.waiting:
            self._accounts[claim.namespace].queue.append(claim)
        # For each resource, the smallest need of any claim.
        self._least = tuple(map(min, zip(*{_needs(claim.amounts) for claim in state.waiting}, strict=True))) or _NOTHING
        for account in self._accounts.values():
            self._put_in_order(account.queue)

    def run(self) -> Outlook:
        heads = [self._precedence(account) for account in self._accounts.values() if self._has_head(account)]
        heapq.heapify(heads)
        while heads and not self._is_exhausted():
            account = self._accounts[heapq.heappop(heads)[-1]]
            self._decide(account)
            if account.passed_over < self._rules.depth and self._has_head(account):
                heapq.heappush(heads, self._precedence(account))
        for *_, namespace in heads:
            self._reject_rest(self._accounts[namespace])
        for account in self._accounts.values():
            self._mark_unreached(account)
        return Outlook(tuple(self._granted), self._waiting, self._recalled)

    def _overdue(self, claim: Claim) -> bool:
        return self._now - claim.since >= self._rules.patience

    def _put_in_order(self, queue: list[Claim]) -> None:
        """Sort by age, and by key where ages are equal. Keys are formatted only then, because that is slow."""
        ages = [self._age(claim) for claim in queue]
        tied = len(set(ages)) < len(ages)
        keys = [(*age, str(claim.key)) for age, claim in zip(ages, queue, strict=True)] if tied else ages
        queue[:] = [queue[at] for at in sorted(range(len(queue)), key=keys.__getitem__)]

    def _age(self, claim: Claim) -> tuple[bool, float, float]:
        since = claim.since
        if self._now - since >= self._rules.patience:
            return False, since, since
        return True, since - self._rules.head_start.get(claim.priority, 0.0), since

    def _precedence(self, account: _Account) -> tuple[bool, bool, float, float, str]:
        """Return the sort key of the namespace; the smallest comes first. The name makes the order total."""
        head = account.head
        overdue = self._overdue(head)
        share = 0.0 if overdue else self._share(account)
        borrows = not _within(account.need, account.left(account.limit))
        return borrows, not overdue, share, self._age(head)[1], account.namespace.name

    def _share(self, account: _Account) -> float:
        """Return the largest fraction that the namespace holds of any limited resource."""
        return max([account.used[i] / amount for i, amount in self._shared], default=0.0)

    def _hold(self, namespace: str, amounts: _Vector, ends: float) -> None:
        _add(self._free, amounts, -1)
        _add(self._accounts[namespace].used, amounts)
        self._ends.append((ends, namespace, amounts))

    def _has_head(self, account: _Account) -> bool:
        """Whether a claim is left to decide on.

        Skips claims that are NEVER granted or lack budget: they wait for no amounts held by others and block no claim.
        """
        while account.at < len(account.queue):
            account.need = _needs(account.head.amounts)
            obstacle = self._impossible(account, account.head, account.need)
            if obstacle is None:
                return True
            account.at += 1
            self._record_waiting(account, account.queue[account.at - 1], obstacle)
        return False

    def _impossible(self, account: _Account, claim: Claim, need: _Vector) -> Obstacle | None:
        if need not in account.possible:
            if not (_within(need, account.ceiling) and _within(need, self._capacity)):
                return Obstacle.NEVER
            account.possible.add(need)
        if not account.budgeted:
            return None
        used, budgets = hours(claim.amounts, claim.length), account.namespace.budgets
        if _overdraws(budgets, used, {}):
            return Obstacle.NEVER
        return Obstacle.BUDGET if _overdraws(budgets, used, account.spent) else None

    def _decide(self, account: _Account) -> None:
        claim, need = account.head, account.need
        account.at += 1
        ends = self._now + claim.length
        obstacle = self._obstacle(account, need, ends)
        if obstacle is None:
            self._grant(account, claim, need, ends)
            return
        first = not account.passed_over and obstacle is not Obstacle.TURN
        if first:
            self._reserve_for_head(account, claim, need, obstacle)
        account.passed_over += 1
        self._record_waiting(account, claim, obstacle, account.reservation if first else None)

    def _obstacle(self, account: _Account, need: _Vector, ends: float) -> Obstacle | None:
        if not _within(need, account.left(account.ceiling)):
            return Obstacle.LIMIT
        if not _within(need, self._free):
            return Obstacle.CAPACITY
        first, own = self._reservation, account.reservation
        waits = first is not None and not first.allows(need, first.spare, ends)
        waits = waits or (own is not None and not own.allows(need, own.namespace_spare, ends))
        return Obstacle.TURN if waits else None

    def _grant(self, account: _Account, claim: Claim, need: _Vector, ends: float) -> None:
        self._granted.append(claim.key)
        self._hold(claim.namespace, need, ends)
        for name, amount in hours(claim.amounts, claim.length).items():
            account.spent[name] += amount
        if self._reservation is not None and ends > self._reservation.until:
            _add(self._reservation.spare, need, -1)
        if account.reservation is not None and ends > account.reservation.until:
            _add(account.reservation.namespace_spare, need, -1)

    def _record_waiting(
        self, account: _Account, claim: Claim, obstacle: Obstacle, reservation: _HeadReservation | None = None
    ) -> None:
        left, free = tuple(account.left(account.ceiling)), tuple(self._free)
        latest = reservation.until if reservation is not None else None
        waiting = Waiting(claim, obstacle, account.waiting, left, free, latest, claim.key in self._coming)
        self._waiting[claim.key] = waiting
        account.waiting += obstacle is not Obstacle.NEVER

    # --- When no capacity is left ---
    def _is_exhausted(self) -> bool:
        """Whether the platform has too little left for any claim, and the first of them has a reservation.

        No later decision depends on the order of the namespaces then.
        """
        return self._reservation is not None and not _within(self._least, self._free)

    def _reject_rest(self, account: _Account) -> None:
        """Record the result that ``_decide`` would give for each remaining claim, in order."""
        left, free = tuple(account.left(account.ceiling)), tuple(self._free)
        while account.passed_over < self._rules.depth and self._has_head(account):
            claim, need = account.head, account.need
            obstacle = Obstacle.CAPACITY if _within(need, left) else Obstacle.LIMIT
            latest = None
            if not account.passed_over:
                account.reservation = self._earliest_start(account, claim, need)
                latest = account.reservation.until
            self._waiting[claim.key] = Waiting(claim, obstacle, account.waiting, left, free, latest)
            account.at, account.passed_over, account.waiting = (
                account.at + 1,
                account.passed_over + 1,
                account.waiting + 1,
            )

    def _mark_unreached(self, account: _Account) -> None:
        """Record the claims beyond ``depth``. Amounts no longer change, so all of them get the same ones."""
        left, free = tuple(account.left(account.ceiling)), tuple(self._free)
        for claim in account.queue[account.at :]:
            self._waiting[claim.key] = Waiting(claim, Obstacle.BEHIND, account.waiting, left, free)
            account.waiting += 1

    # --- The reservation of the first waiting claim ---
    def _reserve_for_head(self, account: _Account, claim: Claim, need: _Vector, obstacle: Obstacle) -> None:
        of_platform = obstacle is Obstacle.CAPACITY and self._reservation is None
        if of_platform and _within(need, account.left(account.limit)):
            self._recall(claim, need)
        account.reservation = self._earliest_start(account, claim, need)
        if of_platform:
            self._reservation = account.reservation

    def _earliest_start(self, account: _Account, claim: Claim, need: _Vector) -> _HeadReservation:
        """Return the reservation that begins when enough holdings have ended by their timeouts.

        The claim fits once all of them have ended, because it is not NEVER.
        """
        free, left, until = list(self._free), account.left(account.ceiling), self._now
        for ends, namespace, amounts in sorted(self._ends):
            if _within(need, free) and _within(need, left):
                break
            until = ends
            _add(free, amounts)
            if namespace == claim.namespace:
                _add(left, amounts)
        _add(free, need, -1)
        _add(left, need, -1)
        return _HeadReservation(claim, need, until, free, left)

    # --- Recalls of borrowed capacity ---
    def _recall(self, claim: Claim, need: _Vector) -> None:
        """Record the holdings to recall so that the claim fits; none if all of them would not suffice."""
        lacking = [need[i] - self._free[i] if need[i] else 0 for i in _INDICES]
        for holding in self._held:
            if holding.recalled:
                _add(lacking, _needs(holding.amounts), -1)
        chosen = self._holdings_to_recall(claim, lacking)
        if all(amount <= 0 for amount in lacking):
            self._coming.add(claim.key)
        for holding in chosen:
            self._recalled[holding.key] = claim
            gone = (max(self._now, holding.until), holding.namespace, _needs(holding.amounts))
            self._ends[self._ends.index(gone)] = (self._now, *gone[1:])

    def _holdings_to_recall(self, claim: Claim, lacking: list[int]) -> list[Holding]:
        """Return as few as possible of the holdings that may be recalled; none if they do not suffice."""
        used = {name: list(account.used) for name, account in self._accounts.items()}
        chosen: list[Holding] = []
        for holding in sorted(self._held, key=self._least_loss):
            if all(amount <= 0 for amount in lacking):
                break
            amounts = _needs(holding.amounts)
            if self._may_be_recalled(holding, claim, used[holding.namespace], lacking):
                chosen.append(holding)
                _add(used[holding.namespace], amounts, -1)
                _add(lacking, amounts, -1)
        if any(amount > 0 for amount in lacking):
            return []
        return _fewest(chosen, lacking)

    def _least_loss(self, holding: Holding) -> tuple[float, float, str]:
        return self._rules.head_start.get(holding.priority, 0.0), -holding.since, str(holding.key)

    def _may_be_recalled(self, holding: Holding, claim: Claim, used: list[int], lacking: list[int]) -> bool:
        if (
            holding.namespace == claim.namespace
            or holding.recalled
            or self._now - holding.since < self._rules.shortest_run
        ):
            return False
        limit, amounts = self._accounts[holding.namespace].limit, _needs(holding.amounts)
        return any(lacking[i] > 0 and amounts[i] and used[i] > limit[i] for i in _INDICES)


def _account(namespace: NamespaceQuota) -> _Account:
    limit, borrow = _bounds(namespace.limits), _needs(namespace.borrow)
    ceiling = tuple(limit[i] + borrow[i] for i in _INDICES)
    spent = {name: namespace.spent.get(name, 0.0) for name in HOURS_OF}
    budgeted = any(budget is not None for budget in namespace.budgets.values())
    return _Account(namespace, limit, ceiling, list(_NOTHING), spent, [], budgeted)


def _overdraws(budgets: Limits, used: Amounts, spent: Amounts) -> bool:
    return any(
        budget is not None and used[name] > 0 and spent.get(name, 0.0) + used[name] > budget + 1e-9
        for name, budget in ((name, budgets.get(name)) for name in HOURS_OF)
    )


def _fewest(chosen: list[Holding], lacking: list[int]) -> list[Holding]:
    """Return the holdings without those that the others make unnecessary. ``lacking`` is at most zero."""
    kept = list(chosen)
    for holding in chosen:
        amounts = _needs(holding.amounts)
        if all(lacking[i] + amounts[i] <= 0 for i in _INDICES if amounts[i]):
            kept.remove(holding)
            _add(lacking, amounts)
    return kept
