"""K5 of the policy alone: admissions per second with 15,000 queued jobs in 30 queues.

This is the baseline shape of Kueue's own performance test. Every queue holds 350 small, 100 medium and 50 large jobs
(1, 5 and 20 units for 0.2, 0.5 and 1 second), has a quota of 20 units and may borrow 100 more. Time is simulated: every
100 ms a decision is made about all waiting jobs, and jobs end when their time is over. Only the time of the decisions
counts.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench.report import Row, at_least
from quota.policy import Claim, Holding, NamespaceQuota, Rules, State, outlook

QUEUES, NOMINAL, BORROW = 30, 20, 100
# (number in a queue, units, seconds, priority)
CLASSES = ((350, 1, 0.2, "low"), (100, 5, 0.5, "normal"), (50, 20, 1.0, "high"))
TICK_SECONDS = 0.1
# Admissions per second of Kueue on a real control plane, as published by its maintainers.
PEER, GOAL = 42.7, 200.0


def measure() -> list[Row]:
    rate = admissions_a_second()
    case = f"admissions a second, the policy alone, {QUEUES} queues of {sum(count for count, *_ in CLASSES)}"
    # Without a ratio to Kueue, whose published rate includes its control plane.
    return [at_least("K5", case, round(rate, 1), GOAL)]


def admissions_a_second() -> float:
    """Return the admissions per second of decision time, until all jobs are admitted."""
    namespaces = {
        f"q{number}": NamespaceQuota(f"q{number}", {"cpu": NOMINAL}, {"cpu": BORROW}) for number in range(QUEUES)
    }
    waiting = {claim.key: claim for name in namespaces for claim in _queue(name)}
    held: dict[object, Holding] = {}
    total, now, spent, rules = len(waiting), 10.0, 0.0, Rules(shortest_run=60)
    while waiting:
        held = {key: each for key, each in held.items() if each.until > now}
        state = State(namespaces, {"cpu": QUEUES * NOMINAL}, list(held.values()), list(waiting.values()))
        begun = time.perf_counter()
        granted = outlook(state, now, rules).granted
        spent += time.perf_counter() - begun
        for key in granted:
            claim = waiting.pop(key)
            held[key] = Holding(key, claim.namespace, claim.amounts, now, now + claim.length, claim.priority)
        now += TICK_SECONDS
    return total / spent


def _queue(namespace: str) -> Iterator[Claim]:
    for count, units, seconds, priority in CLASSES:
        for number in range(count):
            yield Claim(f"{namespace}-{units}-{number}", namespace, {"cpu": units}, number / 1000, seconds, priority)
