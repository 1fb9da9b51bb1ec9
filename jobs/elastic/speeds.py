"""What a job's speed was by the number of its trainers, from its metrics and the story of its number. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

# Trainers come and go within so many seconds of the wish; what is measured meanwhile tells of no number.
SETTLING = 10.0
_FEWEST = 5


class Number(NamedTuple):
    """How many trainers a job was to have from a moment on."""

    since: float
    trainers: int


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
