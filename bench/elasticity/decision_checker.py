"""Checks of every decision of a policy: jobs stopped whole for others, and changes that are taken back.

A change is taken back if the number of a job's trainers goes from A to B, and within the cool-down back to A or beyond.
Changes that free capacity for a waiting job or service are counted separately, because those have precedence.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

from jobs.elastic.policy.model import Cluster, Decision, Policy
from jobs.elastic.policy.parameters import RULES

_BENEFICIARY = re.compile(r"to free capacity for `([^`]+)`")


class _Change(NamedTuple):
    at: float
    before: int
    after: int


class CheckedPolicy:
    """A policy that returns the decisions of ``policy`` and checks them.

    ``preemptions``: the number of times that each job was stopped whole for each other one, as far as the policy names
    it. ``taken_back`` and ``taken_back_for_waiting``: the (time, job) of each change that was taken back.
    """

    def __init__(self, policy: Policy, cool_down: float = RULES.cool_down) -> None:
        self._policy, self._cool_down = policy, cool_down
        self._changes: dict[str, _Change] = {}
        self.preemptions: Counter[tuple[str, str]] = Counter()
        self.taken_back: list[tuple[float, str]] = []
        self.taken_back_for_waiting: list[tuple[float, str]] = []

    @property
    def most_for_one(self) -> int:
        return max(self.preemptions.values(), default=0)

    def __call__(self, cluster: Cluster, now: float) -> Decision:
        decision = self._policy(cluster, now)
        self.preemptions.update((job, beneficiary) for job, beneficiary in decision.preempted.items() if beneficiary)
        waiting = {job.key for job in cluster.jobs if job.started is None or job.size < job.least}
        waiting |= {service.key for service in cluster.services}
        for job in cluster.jobs:
            given = sum(decision.grants.get(job.key, {}).values()) - sum(decision.victims.get(job.key, {}).values())
            if given and job.started is not None:
                self._note(job.key, _Change(now, job.size, job.size + given), decision, waiting)
        for key in decision.preempted:
            self._changes.pop(key, None)
        return decision

    def _note(self, key: str, change: _Change, decision: Decision, waiting: set[str]) -> None:
        last = self._changes.get(key)
        self._changes[key] = change
        if last is None or change.at - last.at >= self._cool_down:
            return
        grew, grows = last.after > last.before, change.after > change.before
        if grew == grows or (change.after > last.before if grew else change.after < last.before):
            return
        found = _BENEFICIARY.search(decision.messages.get(key, ""))
        for_waiting = not grows and found is not None and found[1] in waiting
        (self.taken_back_for_waiting if for_waiting else self.taken_back).append((change.at, key))
