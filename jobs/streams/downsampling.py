"""Reduction of the points of one metric to buckets along x. Pure.

A ``Summary`` is a table with a row for each non-empty bucket; a raw point is a bucket of its own. One function,
``reduce``, makes coarse buckets from fine ones, and a summary of summaries equals the summary of the points: minimum,
maximum, counts and last value are the same on either path. A bucket of width ``w`` is ``[k w, (k + 1) w)``. Widths are
powers of two, so the buckets of a width stay in place while a run grows, and each lies within one of twice the width.
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

# With smaller widths, bucket numbers would not fit into 63 bits for all x that a float holds exactly.
_SMALLEST_EXPONENT = -20


@dataclass(frozen=True)
class Summary:
    """Columns of equal length, in order of arrival until ``reduce`` orders them by x.

    * ``x``: the first x; ``low``, ``high``: the least and the greatest value.
    * ``last``: the value that was appended last; ``seq``: its sequence number.
    * ``count``: the number of points with a number; ``nan``: the number of points that are NaN.

    Where ``count`` is 0, ``low``, ``high`` and ``last`` are NaN and ``seq`` is -1.
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
        """Return a summary in which every point is a bucket."""
        missing = np.isnan(values)
        return cls(
            x, values, values, values, np.where(missing, -1, seq), (~missing).astype(np.int64), missing.astype(np.int64)
        )

    @classmethod
    def joined(cls, parts: Sequence[Summary]) -> Summary:
        """Concatenate summaries. At least one part is required."""
        if len(parts) == 1:
            return parts[0]
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in COLUMNS))

    def between(self, low: float | None, high: float | None) -> Summary:
        """Return the rows with ``low <= x < high``; None: no bound."""
        if low is None and high is None:
            return self
        chosen = (self.x >= (-math.inf if low is None else low)) & (self.x < (math.inf if high is None else high))
        return Summary(*(getattr(self, name)[chosen] for name in COLUMNS))


COLUMNS = ("x", "low", "high", "last", "seq", "count", "nan")


def empty() -> Summary:
    """Return a summary without rows."""
    nothing, none = np.empty(0), np.empty(0, np.int64)
    return Summary(nothing, nothing, nothing, nothing, none, none, none)


def width_for(span: float, buckets: int) -> float:
    """Return the least power of two that divides a span of x into at most ``buckets`` pieces.

    A span that does not begin at an edge can touch one bucket more.
    """
    if span <= 0:
        return 2.0**_SMALLEST_EXPONENT
    return 2.0 ** max(_SMALLEST_EXPONENT, math.ceil(math.log2(span / buckets)))


def reduce(summary: Summary, width: float) -> Summary:
    """Return one row for each bucket of the width, ordered by x."""
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
    """Return the value with the greatest sequence number of each bucket; NaN in a bucket without numbers.

    Sequence numbers are unique, so at most one row of a bucket matches.
    """
    sizes = np.diff(starts, append=len(summary))
    chosen = (summary.seq == np.repeat(seq, sizes)) & (summary.seq >= 0)
    last = np.full(len(starts), np.nan)
    last[seq >= 0] = summary.last[chosen]
    return last
