"""Admission: who may start now, who waits and why, and who has to give back what was lent. Pure.

``outlook`` looks at the whole platform at one moment. Times are unix seconds, amounts as in ``quota.models``.

* A namespace (a *room* here) may hold up to its limits. What it may *borrow* comes on top, from idle capacity.
* Within a room the order is age, and a priority is a head start in age: whoever comes later overtakes for so long and
  no longer. Between rooms that wait for the same capacity, the one that holds the least of it goes first (its dominant
  share). Who has waited longer than ``Rules.patience`` goes before all that, the oldest first: so nobody is overtaken
  for longer, and nobody starves.
* Who stays within the limits goes before all who borrow. Where such a one lacks capacity that others have borrowed,
  just enough of theirs is called back: of low priority first, then what began last, nothing that began a moment ago.
  Whoever is called back held more than its room's limit, and whoever it makes room for does not: so nobody is called
  back in turn.
* The first that lacks something keeps its place: a later one may start before it (back-fill) if that takes nothing of
  what the first waits for, or ends before the first could have started. The ends are those of the jobs' timeouts, so
  the moment until which the first waits at the longest never moves away by who is let in before it.
* A month's budget of hours is never overdrawn: whoever starts needs as much of it as it can use until its timeout.
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
# Cores are counted in thousandths, so that tenths of them add up exactly.
_SCALE = tuple(1000 if resource == "cpu" else 1 for resource in HELD)
_SCALED = tuple(zip(HELD, _SCALE, strict=True))
_UNLIMITED = 1 << 100
_NOTHING: _Vector = (0,) * len(HELD)


@dataclass(frozen=True)
class Rules:
    """``head_start``: seconds of age that a priority is worth. ``patience``: after so many seconds a claim goes before
    fair shares. ``shortest_run``: seconds that a borrower may keep what it has. ``depth``: how many claims behind the
    first that waits are looked at for back-filling."""

    head_start: Mapping[str, float] = field(default_factory=lambda: {"low": 0.0, "normal": 3600.0, "high": 4 * 3600.0})
    patience: float = 4 * 3600.0
    shortest_run: float = 600.0
    depth: int = 100


RULES = Rules()


@dataclass(frozen=True)
class NamespaceQuota:
    """A namespace. ``budgets`` are hours a month, ``spent`` is what of them was used or is kept for running jobs."""

    name: str
    limits: Limits = field(default_factory=dict)
    borrow: Amounts = field(default_factory=dict)
    budgets: Limits = field(default_factory=dict)
    spent: Amounts = field(default_factory=dict)


@dataclass(frozen=True)
class Claim:
    """An attempt that waits since ``since`` and would hold the amounts for ``length`` seconds at most."""

    key: Key
    namespace: str
    amounts: Amounts
    since: float
    length: float = 3600.0
    priority: str = "normal"


@dataclass(frozen=True)
class Holding:
    """An attempt that holds amounts since ``since``, until ``until`` at the latest. ``recalled``: it has been asked to
    give them back."""

    key: Key
    namespace: str
    amounts: Amounts
    since: float
    until: float
    priority: str = "normal"
    recalled: bool = False


@dataclass(frozen=True)
class State:
    """The platform at one moment. A resource without capacity has no end."""

    namespaces: Mapping[str, NamespaceQuota]
    capacity: Limits = field(default_factory=dict)
    held: Sequence[Holding] = ()
    waiting: Sequence[Claim] = ()


class Obstacle(StrEnum):
    """Why a claim is not granted now."""

    NEVER = "never"  # would not be if nothing else ran
    BUDGET = "budget"  # the month's hours are used up or kept for running jobs
    LIMIT = "limit"  # the room holds too much
    CAPACITY = "capacity"  # the platform has too little left
    TURN = "turn"  # it would take from one before it
    BEHIND = "behind"  # too many are before it to look


class Waiting(NamedTuple):
    """A claim that is not granted. ``before``: how many wait before it in its room. ``latest``: when it can start at
    the latest, unless somebody with precedence comes; None where that cannot be said. ``coming``: capacity is being
    called back for it."""

    claim: Claim
    obstacle: Obstacle
    before: int
    namespace_left: _Vector
    platform_left: _Vector
    latest: float | None = None
    coming: bool = False

    @property
    def namespace_free(self) -> dict[str, float]:
        """What its room could still hold when it was looked at; a resource without an end is left out."""
        return _plain(self.namespace_left)

    @property
    def platform_free(self) -> dict[str, float]:
        """What the platform had left then."""
        return _plain(self.platform_left)


@dataclass(frozen=True)
class Outlook:
    """``granted`` in the order of the decisions; ``waiting`` by key; ``recalled``: who has to give back, for whom."""

    granted: tuple[Key, ...]
    waiting: Mapping[Key, Waiting]
    recalled: Mapping[Key, Claim]


def outlook(state: State, now: float, rules: Rules = RULES) -> Outlook:
    """All decisions of this moment; the same input gives the same output."""
    return _Pass(state, now, rules).run()


# --- Amounts as vectors of whole numbers ------------------------------------------------------------------------------
def _needs(amounts: Amounts) -> _Vector:
    return _vector(tuple(amounts.items()))


# Many ask for the same.
@lru_cache(maxsize=4096)
def _vector(items: tuple[tuple[str, float], ...]) -> _Vector:
    amounts = dict(items)
    return tuple([round(amounts[name] * scale) if name in amounts else 0 for name, scale in _SCALED])


def _bounds(limits: Limits) -> _Vector:
    return tuple(_bound(limits.get(name), scale) for name, scale in zip(HELD, _SCALE, strict=True))


def _bound(limit: float | None, scale: int) -> int:
    return _UNLIMITED if limit is None else int(limit * scale + 1e-6)


def _plain(vector: Iterable[int]) -> dict[str, float]:
    """Back to amounts; what has no end is left out, what is overdrawn counts as nothing."""
    pairs = zip(HELD, _SCALE, vector, strict=True)
    return {name: max(0, value) / scale for name, scale, value in pairs if value < _UNLIMITED // 2}


def _within(need: _Vector, free: Sequence[int]) -> bool:
    """Nothing asked of a resource is no reason to wait, even where a lowered limit is over-held."""
    for amount, left in zip(need, free, strict=True):  # noqa: SIM110  asked more often than anything else
        if amount > left and amount:
            return False
    return True


def _add(to: list[int], amounts: _Vector, sign: int = 1) -> None:
    for i in _INDICES:
        to[i] += sign * amounts[i]


# --- One look at everything -------------------------------------------------------------------------------------------
@dataclass
class _Place:
    """What is kept for the first that waits: until then at the longest, and what others may take meanwhile."""

    claim: Claim
    need: _Vector
    until: float
    spare: list[int]  # of the platform
    namespace_spare: list[int]

    def leaves(self, need: _Vector, spare: Sequence[int], ends: float) -> bool:
        """Whether somebody who holds ``need`` until ``ends`` takes nothing from it."""
        contested = (i for i in _INDICES if need[i] and self.need[i])
        return ends <= self.until or all(need[i] <= spare[i] for i in contested)


@dataclass
class _Account:
    """One room's books during a pass."""

    namespace: NamespaceQuota
    limit: _Vector
    ceiling: _Vector
    used: list[int]
    spent: dict[str, float]
    queue: list[Claim]
    # Whether there is an end to its hours.
    budgeted: bool
    at: int = 0
    place: _Place | None = None
    passed_over: int = 0
    waiting: int = 0

    # What the first of the queue needs; reckoned once for all who ask.
    need: _Vector = _NOTHING
    # What could be held if nothing else ran, as far as somebody has asked.
    possible: set[_Vector] = field(default_factory=set)

    @property
    def head(self) -> Claim:
        return self.queue[self.at]

    def left(self, bound: _Vector) -> list[int]:
        return [amount - used for amount, used in zip(bound, self.used, strict=True)]


class _Pass:
    """The working of one ``outlook``."""

    def __init__(self, state: State, now: float, rules: Rules) -> None:
        self._now, self._rules, self._held = now, rules, state.held
        self._capacity = _bounds(state.capacity)
        self._free = list(self._capacity)
        self._shared = [(i, amount) for i, amount in enumerate(self._capacity) if 0 < amount < _UNLIMITED]
        self._place: _Place | None = None
        self._granted: list[Key] = []
        self._waiting: dict[Key, Waiting] = {}
        self._recalled: dict[Key, Claim] = {}
        self._coming: set[Key] = set()
        self._accounts = {name: _account(namespace) for name, namespace in state.namespaces.items()}
        # (end, room, amounts) of all that is held, also of what is granted on the way.
        self._ends: list[tuple[float, str, _Vector]] = []
        for holding in state.held:
            ends = now if holding.recalled else max(now, holding.until)
            self._take(holding.namespace, _needs(holding.amounts), ends)
        for claim in state.waiting:
            self._accounts[claim.namespace].queue.append(claim)
        # Of each resource, what every claim needs of it at least.
        self._least = tuple(map(min, zip(*{_needs(claim.amounts) for claim in state.waiting}, strict=True))) or _NOTHING
        for account in self._accounts.values():
            self._put_in_order(account.queue)

    def run(self) -> Outlook:
        turns = [self._turn(account) for account in self._accounts.values() if self._has_head(account)]
        heapq.heapify(turns)
        while turns and not self._is_exhausted():
            account = self._accounts[heapq.heappop(turns)[-1]]
            self._decide(account)
            if account.passed_over < self._rules.depth and self._has_head(account):
                heapq.heappush(turns, self._turn(account))
        for *_turn, namespace in turns:
            self._turn_away(self._accounts[namespace])
        for account in self._accounts.values():
            self._leave_behind(account)
        return Outlook(tuple(self._granted), self._waiting, self._recalled)

    def _overdue(self, claim: Claim) -> bool:
        return self._now - claim.since >= self._rules.patience

    def _put_in_order(self, queue: list[Claim]) -> None:
        """By age; those of the same age by their keys, which take long to write out."""
        ages = [self._age(claim) for claim in queue]
        tied = len(set(ages)) < len(ages)
        keys = [(*age, str(claim.key)) for age, claim in zip(ages, queue, strict=True)] if tied else ages
        queue[:] = [queue[at] for at in sorted(range(len(queue)), key=keys.__getitem__)]

    def _age(self, claim: Claim) -> tuple[bool, float, float]:
        since = claim.since
        if self._now - since >= self._rules.patience:
            return False, since, since
        return True, since - self._rules.head_start.get(claim.priority, 0.0), since

    def _turn(self, account: _Account) -> tuple[bool, bool, float, float, str]:
        """Its place among the rooms; the smallest comes first. The name makes the order total."""
        head = account.head
        overdue = self._overdue(head)
        share = 0.0 if overdue else self._share(account)
        borrows = not _within(account.need, account.left(account.limit))
        return borrows, not overdue, share, self._age(head)[1], account.namespace.name

    def _share(self, account: _Account) -> float:
        """The largest part that the room holds of any resource that has an end."""
        return max([account.used[i] / amount for i, amount in self._shared], default=0.0)

    def _take(self, namespace: str, amounts: _Vector, ends: float) -> None:
        _add(self._free, amounts, -1)
        _add(self._accounts[namespace].used, amounts)
        self._ends.append((ends, namespace, amounts))

    def _has_head(self, account: _Account) -> bool:
        """Whether a claim is left to look at. Those that wait for nothing that others hold stand in nobody's way."""
        while account.at < len(account.queue):
            account.need = _needs(account.head.amounts)
            obstacle = self._hopeless(account, account.head, account.need)
            if obstacle is None:
                return True
            account.at += 1
            self._let_wait(account, account.queue[account.at - 1], obstacle)
        return False

    def _hopeless(self, account: _Account, claim: Claim, need: _Vector) -> Obstacle | None:
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
            self._keep_place(account, claim, need, obstacle)
        account.passed_over += 1
        self._let_wait(account, claim, obstacle, account.place if first else None)

    def _obstacle(self, account: _Account, need: _Vector, ends: float) -> Obstacle | None:
        if not _within(need, account.left(account.ceiling)):
            return Obstacle.LIMIT
        if not _within(need, self._free):
            return Obstacle.CAPACITY
        place, own = self._place, account.place
        waits = place is not None and not place.leaves(need, place.spare, ends)
        waits = waits or (own is not None and not own.leaves(need, own.namespace_spare, ends))
        return Obstacle.TURN if waits else None

    def _grant(self, account: _Account, claim: Claim, need: _Vector, ends: float) -> None:
        self._granted.append(claim.key)
        self._take(claim.namespace, need, ends)
        for name, amount in hours(claim.amounts, claim.length).items():
            account.spent[name] += amount
        if self._place is not None and ends > self._place.until:
            _add(self._place.spare, need, -1)
        if account.place is not None and ends > account.place.until:
            _add(account.place.namespace_spare, need, -1)

    def _let_wait(self, account: _Account, claim: Claim, obstacle: Obstacle, place: _Place | None = None) -> None:
        left, free = tuple(account.left(account.ceiling)), tuple(self._free)
        latest = place.until if place is not None else None
        waiting = Waiting(claim, obstacle, account.waiting, left, free, latest, claim.key in self._coming)
        self._waiting[claim.key] = waiting
        account.waiting += obstacle is not Obstacle.NEVER

    # --- When nothing is left to give ---
    def _is_exhausted(self) -> bool:
        """Whether the platform has too little left for any claim, and the first of them has its place: nothing that is
        decided from here on depends on whose turn it is."""
        return self._place is not None and not _within(self._least, self._free)

    def _turn_away(self, account: _Account) -> None:
        """What ``_decide`` would say to each that is still to be looked at, one after the other."""
        left, free = tuple(account.left(account.ceiling)), tuple(self._free)
        while account.passed_over < self._rules.depth and self._has_head(account):
            claim, need = account.head, account.need
            obstacle = Obstacle.CAPACITY if _within(need, left) else Obstacle.LIMIT
            latest = None
            if not account.passed_over:
                account.place = self._when(account, claim, need)
                latest = account.place.until
            self._waiting[claim.key] = Waiting(claim, obstacle, account.waiting, left, free, latest)
            account.at, account.passed_over, account.waiting = (
                account.at + 1,
                account.passed_over + 1,
                account.waiting + 1,
            )

    def _leave_behind(self, account: _Account) -> None:
        """Those that nobody looked at: nothing changes any more, so all of them see the same."""
        left, free = tuple(account.left(account.ceiling)), tuple(self._free)
        for claim in account.queue[account.at :]:
            self._waiting[claim.key] = Waiting(claim, Obstacle.BEHIND, account.waiting, left, free)
            account.waiting += 1

    # --- The place of the first that waits ---
    def _keep_place(self, account: _Account, claim: Claim, need: _Vector, obstacle: Obstacle) -> None:
        of_platform = obstacle is Obstacle.CAPACITY and self._place is None
        if of_platform and _within(need, account.left(account.limit)):
            self._call_back(claim, need)
        account.place = self._when(account, claim, need)
        if of_platform:
            self._place = account.place

    def _when(self, account: _Account, claim: Claim, need: _Vector) -> _Place:
        """The first moment at which enough has ended, at the latest. Once all has ended it fits: it is not NEVER."""
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
        return _Place(claim, need, until, free, left)

    # --- Giving back what was lent ---
    def _call_back(self, claim: Claim, need: _Vector) -> None:
        """Note who has to give back so that the claim fits; nobody where that would not be enough."""
        lacking = [need[i] - self._free[i] if need[i] else 0 for i in _INDICES]
        for holding in self._held:
            if holding.recalled:
                _add(lacking, _needs(holding.amounts), -1)
        chosen = self._lenders(claim, lacking)
        if all(amount <= 0 for amount in lacking):
            self._coming.add(claim.key)
        for holding in chosen:
            self._recalled[holding.key] = claim
            gone = (max(self._now, holding.until), holding.namespace, _needs(holding.amounts))
            self._ends[self._ends.index(gone)] = (self._now, *gone[1:])

    def _lenders(self, claim: Claim, lacking: list[int]) -> list[Holding]:
        """The fewest of those who may be called back, or none."""
        used = {name: list(account.used) for name, account in self._accounts.items()}
        chosen: list[Holding] = []
        for holding in sorted(self._held, key=self._least_loss):
            if all(amount <= 0 for amount in lacking):
                break
            amounts = _needs(holding.amounts)
            if self._may_be_called_back(holding, claim, used[holding.namespace], lacking):
                chosen.append(holding)
                _add(used[holding.namespace], amounts, -1)
                _add(lacking, amounts, -1)
        if any(amount > 0 for amount in lacking):
            return []
        return _fewest(chosen, lacking)

    def _least_loss(self, holding: Holding) -> tuple[float, float, str]:
        return self._rules.head_start.get(holding.priority, 0.0), -holding.since, str(holding.key)

    def _may_be_called_back(self, holding: Holding, claim: Claim, used: list[int], lacking: list[int]) -> bool:
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
    """Without those that the others make unnecessary; ``lacking`` is at most zero."""
    kept = list(chosen)
    for holding in chosen:
        amounts = _needs(holding.amounts)
        if all(lacking[i] + amounts[i] <= 0 for i in _INDICES if amounts[i]):
            kept.remove(holding)
            _add(lacking, amounts)
    return kept
