"""Speed of a job by its number of trainers, from its metrics and the events of its replicas. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

# Seconds after a trainer joined or left that are ignored: the trainers redistribute the work, and rates vary.
SETTLING = 10.0
_FEWEST = 5


# Kinds of events after which a replica is working, or is not working any more.
JOINED, LEFT = "registered", ("exited", "lost", "restarted")


class ReplicaEvent(NamedTuple):
    at: float
    kind: str
    replica: str


class Number(NamedTuple):
    """Number of working trainers of a job from ``since`` on."""

    since: float
    trainers: int


def trainer_counts(events: Iterable[ReplicaEvent]) -> list[Number]:
    """Return the number of working replicas over time, from their events in order.

    The observed number counts and not the desired one: a machine that pulls an image first can take minutes until its
    trainer registers.
    """
    there: set[str] = set()
    numbers: list[Number] = []
    for at, kind, replica in events:
        if kind == JOINED:
            there.add(replica)
        elif kind in LEFT:
            there.discard(replica)
        if not numbers or numbers[-1].trainers != len(there):
            numbers.append(Number(at, len(there)))
    return numbers


def counts_since(numbers: Sequence[Number], moment: float) -> list[Number]:
    """Return the counts from ``moment`` on, beginning with the count at that time; earlier counts are dropped."""
    before = [each for each in numbers if each.since <= moment]
    at_it = [Number(moment, before[-1].trainers)] if before else []
    return [*at_it, *(each for each in numbers if each.since > moment)]


def by_trainers(rates: Sequence[tuple[float, float]], numbers: Sequence[Number], now: float) -> dict[int, float]:
    """Return the median rate (records per second) for each number of trainers that lasted long enough.

    If a number of trainers occurred more than once, the latest period counts. ``rates``: (time, records per second), in
    order of time, as are ``numbers``.
    """
    found: dict[int, float] = {}
    for (since, trainers), (until, _) in pairwise([*numbers, Number(now, 0)]):
        within = [rate for at, rate in rates if since + SETTLING <= at < until]
        if len(within) >= _FEWEST:
            found[trainers] = median(within)
    return found
