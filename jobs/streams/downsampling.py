"""Points of one metric, reduced to buckets along x. Pure.

A ``Summary`` is a table with a row for each bucket that holds something; a raw point is a bucket by itself. So one
function, ``reduce``, makes coarse from fine, and a summary of summaries is the summary of the points: minimum,
maximum, counts and last value come out the same whichever way one goes. A bucket of width ``w`` is ``[k w, (k + 1)
w)``; widths are powers of two, so the buckets of a width never move while a run grows, and each fits into one of
twice the width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

# Below, a bucket's number would not fit into 63 bits for any x that a float can hold exactly.
_SMALLEST_EXPONENT = -20


@dataclass(frozen=True)
class Summary:
    """Columns of equal length, in order of taking in until ``reduce`` orders them by x.

    ``x`` first x · ``low``, ``high`` least and greatest value · ``last`` the value taken in last, whose number is
    ``seq`` · ``count`` numbers · ``nan`` points that are no number. Where ``count`` is 0: ``low``, ``high``, ``last``
    are NaN and ``seq`` is -1.
    """

    x: Floats
    low: Floats
    high: Floats
    last: Floats
    seq: Integers
    count: Integers
    nan: Integers

    def __len__(self) -> int:
        return len(self.x)

    @classmethod
    def of_points(cls, x: Floats, values: Floats, seq: Integers) -> Summary:
        """Every point as a bucket by itself."""
        missing = np.isnan(values)
        return cls(
            x, values, values, values, np.where(missing, -1, seq), (~missing).astype(np.int64), missing.astype(np.int64)
        )

    @classmethod
    def joined(cls, parts: Sequence[Summary]) -> Summary:
        """One after another. At least one part is needed."""
        if len(parts) == 1:
            return parts[0]
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in COLUMNS))

    def between(self, low: float | None, high: float | None) -> Summary:
        """Rows with ``low <= x < high``."""
        if low is None and high is None:
            return self
        chosen = (self.x >= (-math.inf if low is None else low)) & (self.x < (math.inf if high is None else high))
        return Summary(*(getattr(self, name)[chosen] for name in COLUMNS))


COLUMNS = ("x", "low", "high", "last", "seq", "count", "nan")


def empty() -> Summary:
    """No rows."""
    nothing, none = np.empty(0), np.empty(0, np.int64)
    return Summary(nothing, nothing, nothing, nothing, none, none, none)


def width_for(span: float, buckets: int) -> float:
    """The least power of two that cuts a span of x into at most ``buckets`` pieces.

    One more bucket than that may be touched, where the span does not begin at an edge.
    """
    if span <= 0:
        return 2.0**_SMALLEST_EXPONENT
    return 2.0 ** max(_SMALLEST_EXPONENT, math.ceil(math.log2(span / buckets)))


def reduce(summary: Summary, width: float) -> Summary:
    """One row for each bucket of the width, ordered by x."""
    if not len(summary):
        return summary
    number = np.floor(summary.x / width)
    if np.any(number[1:] < number[:-1]):
        order = np.argsort(number, kind="stable")
        number, summary = number[order], Summary(*(getattr(summary, name)[order] for name in COLUMNS))
    starts = np.flatnonzero(np.concatenate(([True], number[1:] != number[:-1])))
    if len(starts) == len(summary):
        return summary
    seq = np.maximum.reduceat(summary.seq, starts)
    return Summary(
        x=np.minimum.reduceat(summary.x, starts),
        low=np.fmin.reduceat(summary.low, starts),
        high=np.fmax.reduceat(summary.high, starts),
        last=_last(summary, seq, starts),
        seq=seq,
        count=np.add.reduceat(summary.count, starts),
        nan=np.add.reduceat(summary.nan, starts),
    )


def _last(summary: Summary, seq: Integers, starts: npt.NDArray[Any]) -> Floats:
    """The value whose number is the greatest of its bucket. Numbers are given once, so it is one row or (without
    numbers) none.
    """
    sizes = np.diff(starts, append=len(summary))
    chosen = (summary.seq == np.repeat(seq, sizes)) & (summary.seq >= 0)
    last = np.full(len(starts), np.nan)
    last[seq >= 0] = summary.last[chosen]
    return last
