"""Decisions of the policy on the present state, and their verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import cast

from portal.common.clock import now as wall_clock
from quota import policy
from quota.models import Claim, Limit
from quota.policy import Obstacle
from quota.resources import HELD, Amounts
from quota.selectors.limits import capacity
from quota.selectors.policy_state import Held, Key, heads_of_queues, namespace_quota, rows_around, state, state_with
from quota.verdicts import MOST_COUNTED, Verdict, verdict
from rbac.models import Namespace

# The number of claims of each namespace that are read at first. The policy considers no more than its depth behind the
# first waiting one, unless some are granted or hopeless.
_HEADS = policy.RULES.depth + 30


@dataclass(frozen=True)
class Decision:
    """The state that was read and the policy's decisions on it.

    Only the head of a long queue is read. Claims that are not in ``looked_at.waiting`` wait behind those that are;
    ``behind`` is their verdict.
    """

    looked_at: policy.State
    found: policy.Outlook

    def verdict(self, key: Key) -> Verdict:
        """Return the verdict on a claim that does not start now."""
        waiting = self.found.waiting.get(key)
        return behind() if waiting is None else verdict_on(waiting.claim, self.looked_at, self.found)


def decide(now: datetime, *, around: Namespace | None = None, least: Held | None = None) -> Decision:
    """Read the state and return the policy's decisions.

    They equal the decisions on the whole queues, at a cost that does not grow with the length of the queues. ``around``
    and ``least`` are those of ``state``.
    """
    heads = _HEADS
    while True:
        waiting, cut = heads_of_queues(rows_around(around), heads, now)
        looked_at = state_with(waiting, now, around, least)
        found = policy.outlook(looked_at, now.timestamp())
        if not cut or _reaches_its_depth(found, cut):
            return Decision(looked_at, found)
        heads *= 4


def decide_again(claims: Sequence[policy.Claim], now: datetime, around: Namespace | None) -> Decision:
    """Return the decisions on claims that were read before, given the present reservations."""
    looked_at = state_with(claims, now, around, None)
    held = {each.key for each in looked_at.held}
    looked_at = replace(looked_at, waiting=[claim for claim in claims if claim.key not in held])
    return Decision(looked_at, policy.outlook(looked_at, now.timestamp()))


def _reaches_its_depth(found: policy.Outlook, cut: set[str]) -> bool:
    """Whether the policy would have considered no claim beyond the cut of any of these namespaces."""
    looked_at = dict.fromkeys(cut, 0)
    for waiting in found.waiting.values():
        if waiting.claim.namespace in cut and waiting.obstacle not in (Obstacle.NEVER, Obstacle.BUDGET):
            looked_at[waiting.claim.namespace] += 1
    # One more than the depth, so that claims beyond the cut have more before them than messages count.
    return all(count > policy.RULES.depth + 1 for count in looked_at.values())


def behind() -> Verdict:
    """Return the verdict on a claim that has too many before it to be considered."""
    claim, nothing = policy.Claim("behind", "", {}, 0.0), (0,) * len(HELD)
    return verdict(
        policy.Waiting(claim, Obstacle.BEHIND, MOST_COUNTED + 1, nothing, nothing), policy.NamespaceQuota(""), {}
    )


def is_far_behind(claim: Claim) -> bool:
    """Whether so many claims of its namespace are before a claim that no decision would consider it.

    Claims that wait for no amounts held by others count too. In that case the sweep decides, which reads beyond them.
    """
    before = Claim.objects.filter(namespace=claim.namespace, turn__lt=claim.turn, since__lt=claim.since)
    return before.order_by()[: _HEADS + 1].count() > _HEADS


def verdict_on(claim: policy.Claim, looked_at: policy.State, found: policy.Outlook) -> Verdict:
    """Return the verdict on a claim that does not start now."""
    return verdict(found.waiting[claim.key], looked_at.namespaces[claim.namespace], looked_at.capacity)


def preview(
    namespace: Namespace, amounts: Amounts, *, length: float, priority: str, now: datetime | None = None
) -> Verdict:
    """Return the verdict that a claim would get now. Nothing is stored."""
    at = now or wall_clock()
    before = state(at, around=namespace)
    asked = policy.Claim("preview", namespace.name, amounts, at.timestamp(), length, priority)
    looked_at = policy.State(before.namespaces, before.capacity, before.held, [*before.waiting, asked])
    found = policy.outlook(looked_at, at.timestamp())
    return Verdict(admitted=True) if asked.key in found.granted else verdict_on(asked, looked_at, found)


@dataclass(frozen=True)
class Bounds:
    """The limits of a namespace and the capacities of the platform, read once for several checks."""

    quota: policy.NamespaceQuota
    capacity: Mapping[str, float]


def bounds_of(namespace: Namespace) -> Bounds:
    return Bounds(namespace_quota(namespace.name, Limit.objects.filter(namespace=namespace)), capacity())


def if_alone(bounds: Bounds, amounts: Amounts, *, length: float) -> Verdict:
    """Return the verdict if nothing else ran or waited and the month had just begun: whether it can ever start."""
    quota = bounds.quota
    asked = policy.Claim("alone", quota.name, amounts, 0.0, length)
    looked_at = policy.State({quota.name: quota}, bounds.capacity, (), [asked])
    found = policy.outlook(looked_at, 0.0)
    return Verdict(admitted=True) if found.granted else verdict_on(asked, looked_at, found)


@dataclass(frozen=True)
class Prospect:
    """Attempts that could start, in order, and the most that each namespace and the platform may hold.

    Unlimited resources are left out.
    """

    turns: tuple[Key, ...]
    ceilings: Mapping[str, Amounts]
    capacity: Amounts


def prospect(now: datetime, least: Held) -> Prospect:
    """Return the attempts that could start if the attempts in ``least`` were reduced to the amounts there."""
    decision = decide(now, least=least)
    looked_at, found = decision.looked_at, decision.found
    ceilings = {
        name: {
            resource: limit + quota.borrow.get(resource, 0.0)
            for resource, limit in quota.limits.items()
            if limit is not None
        }
        for name, quota in looked_at.namespaces.items()
    }
    capacity = {name: amount for name, amount in looked_at.capacity.items() if amount is not None}
    return Prospect(tuple(cast(Key, key) for key in found.granted), ceilings, capacity)
