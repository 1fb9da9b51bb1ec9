"""What a job's speed was by the number of its trainers, from its metrics and the story of who was at work. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

# After a trainer has come or gone the others share the work anew; what is measured meanwhile tells of no number.
SETTLING = 10.0
_FEWEST = 5


# Kinds of events of a replica: it is at work from then on, or not any more.
JOINED, LEFT = "registered", ("exited", "lost", "restarted")


class ReplicaEvent(NamedTuple):
    at: float
    kind: str
    replica: str


class Number(NamedTuple):
    """How many trainers of a job were at work from a moment on."""

    since: float
    trainers: int


def trainer_counts(events: Iterable[ReplicaEvent]) -> list[Number]:
    """How many of those to whom this happened, in order, were at work when. It is not what was wished for that counts:
    a machine that has to fetch an image first may take minutes until a trainer is there."""
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


def known_since(numbers: Sequence[Number], moment: float) -> list[Number]:
    """From a moment on: what was at work before it is not known any more, but for the number at the moment itself."""
    before = [each for each in numbers if each.since <= moment]
    at_it = [Number(moment, before[-1].trainers)] if before else []
    return [*at_it, *(each for each in numbers if each.since > moment)]


def by_trainers(rates: Sequence[tuple[float, float]], numbers: Sequence[Number], now: float) -> dict[int, float]:
    """The median rate (records a second) for each number that was kept for long enough; the latest time that it was.

    ``rates``: (moment, records a second), in order; ``numbers`` in order.
    """
    found: dict[int, float] = {}
    for (since, trainers), (until, _) in pairwise([*numbers, Number(now, 0)]):
        within = [rate for at, rate in rates if since + SETTLING <= at < until]
        if len(within) >= _FEWEST:
            found[trainers] = median(within)
    return found
