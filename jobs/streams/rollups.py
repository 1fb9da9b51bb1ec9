"""Roll-ups for charts: the points of a job in at most about a thousand buckets, whatever the length of the run.

For each job that is viewed, a process caches a summary of every series (metric, attempt, replica) on each requested
axis. It reads only blocks after its cursor in the stream, so it is correct after a restart and beside other processes.
A series of more than ``SERIES_ROWS`` rows is reduced to buckets of twice the width (``downsampling``); the finer
buckets of a zoom are then made from the blocks that cover that range of x. The least recently used jobs are evicted
when all jobs together exceed ``CACHED_ROWS``.
"""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from jobs.streams import downsampling, store
from jobs.streams.block_codec import Points, WriterId
from jobs.streams.downsampling import Floats, Summary
from jobs.streams.entries import number_to_json

AXES = ("step", "elapsed", "wall")
SERIES_ROWS = 1 << 17
CACHED_ROWS = 1 << 22  # of all jobs together; a row takes 56 bytes

Keys = Sequence[str] | None


@dataclass(frozen=True)
class Chart:
    """Buckets of each metric.

    ``next``: the last entry that they include; later entries are read after this cursor. ``left_out``: requested
    metrics without buckets, because the limit on metrics was reached.
    """

    series: dict[str, Summary]
    x: str
    width: float
    next: int
    left_out: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the chart as the API renders it."""
        series = {key: _series_to_json(summary) for key, summary in self.series.items()}
        return {
            "series": series,
            "next": self.next,
            "x": self.x,
            "width": self.width,
            "left_out": list(self.left_out),
        }


def _series_to_json(summary: Summary) -> dict[str, list[Any]]:
    empty = summary.count == 0
    return {
        "x": [number_to_json(x) for x in summary.x.tolist()],
        "min": _numbers(summary.low, empty),
        "max": _numbers(summary.high, empty),
        "last": _numbers(summary.last, empty),
        "count": summary.count.tolist(),
        "nan": summary.nan.tolist(),
    }


def _numbers(column: Floats, empty: Any) -> list[Any]:
    """Return a column for JSON; None for a bucket without a number."""
    values: list[Any] = column.tolist()
    if np.isfinite(column).all():
        return values
    return [None if nothing else number_to_json(value) for value, nothing in zip(values, empty.tolist(), strict=True)]


def buckets(
    job_id: uuid.UUID | str,
    keys: Keys = None,
    *,
    x: str = "step",
    from_: float | None = None,
    to: float | None = None,
    buckets: int = 1000,
    attempt: int | None = None,
    replica: str | None = None,
    most: int | None = None,
) -> Chart:
    """Return the metrics ``keys`` (None: all) between ``from_`` and ``to``, in buckets whose width is a power of two.

    ``x`` is ``step``, ``elapsed`` (seconds since the job's first point) or ``wall`` (unix time). A bucket at an edge is
    whole: it may begin before ``from_``. Every point counts in its bucket, so a narrow spike stays visible. ``most``
    bounds the number of metrics; those that were reported first are shown.
    """
    view = _views.of(uuid.UUID(str(job_id)))
    with view.lock:
        view.read_on()
        axis = view.axis(x)
        chosen = {
            series: rows
            for series, rows in axis.series.items()
            if (keys is None or series.key in keys)
            and attempt in (None, series.writer.attempt)
            and replica in (None, series.writer.replica)
        }
        names = list(dict.fromkeys(series.key for series in chosen))
        shown = set(names[:most])
        chosen = {series: rows for series, rows in chosen.items() if series.key in shown}
        width = _width(list(chosen.values()), from_, to, buckets)
        low, high = _edges(width, from_, to)
        if chosen and width < max(rows.width for rows in chosen.values()):
            chart = axis.from_blocks(chosen, width, low, high)
        else:
            chart = axis.from_rows(chosen, width, low, high)
        return Chart(chart, x, width, view.cursor, tuple(names[len(shown) :]))


def _width(rows: list[_Rows], from_: float | None, to: float | None, buckets: int) -> float:
    lows, highs = [row.low for row in rows], [row.high for row in rows]
    start = from_ if from_ is not None else min(lows, default=0.0)
    end = to if to is not None else max(highs, default=0.0)
    return downsampling.width_for(end - start, buckets)


def _edges(width: float, from_: float | None, to: float | None) -> tuple[float | None, float | None]:
    """Return the range, widened to whole buckets."""
    low = None if from_ is None else float(np.floor(from_ / width) * width)
    high = None if to is None else float((np.floor(to / width) + 1) * width)
    return low, high


@dataclass(frozen=True)
class Series:
    """One metric of one writer."""

    key: str
    writer: WriterId


class _Rows:
    """Summary of one series on one axis. ``width``: that of its buckets; 0 while every point is a row."""

    def __init__(self) -> None:
        self.width = 0.0
        self.low, self.high = np.inf, -np.inf
        self._whole = downsampling.empty()
        self._parts: list[Summary] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, part: Summary) -> None:
        """Add points; reduce the rows when there are too many."""
        self.low, self.high = min(self.low, float(part.x.min())), max(self.high, float(part.x.max()))
        self._parts.append(part)
        self._count += len(part)
        if self._count > SERIES_ROWS:
            self._coarsen()

    def summary(self) -> Summary:
        """Return all rows. They are joined once and the result is cached."""
        if self._parts:
            self._whole = Summary.joined([part for part in (self._whole, *self._parts) if len(part)])
            self._parts = []
        return self._whole

    def _coarsen(self) -> None:
        # Reducing to half of the limit leaves space for as many points again: each row is moved O(1) times.
        rows = self.summary()
        width = max(self.width, downsampling.width_for(self.high - self.low, SERIES_ROWS))
        rows = downsampling.reduce(rows, width)
        while len(rows) > SERIES_ROWS // 2:
            width *= 2
            rows = downsampling.reduce(rows, width)
        self.width, self._whole, self._count = width, rows, len(rows)


@dataclass
class _Axis:
    """Series of a job along one axis."""

    job_id: uuid.UUID
    name: str
    origin: float
    series: dict[Series, _Rows] = field(default_factory=dict)
    # For each block that was read: its first and last entry, and its least and greatest x.
    extents: list[tuple[int, int, float, float]] = field(default_factory=list)

    def x_of(self, points: Points) -> Floats:
        return points.steps if self.name == "step" else points.times - self.origin

    def add(self, lo: int, points: Points) -> None:
        x = self.x_of(points)
        self.extents.append((lo, lo + len(points) - 1, float(x.min()), float(x.max())))
        for series, part in _split(lo, points, x):
            self.series.setdefault(series, _Rows()).add(part)

    def from_rows(
        self, chosen: dict[Series, _Rows], width: float, low: float | None, high: float | None
    ) -> dict[str, Summary]:
        """Return the buckets from the cached rows."""
        parts = [(series.key, rows.summary().between(low, high)) for series, rows in chosen.items()]
        return _by_key(parts, width)

    def from_blocks(
        self, chosen: dict[Series, _Rows], width: float, low: float | None, high: float | None
    ) -> dict[str, Summary]:
        """Return the buckets from the points in the blocks that overlap the range."""
        parts = []
        for first, last in self._ranges(low, high):
            for lo, points in _exactly(self.job_id, first, last):
                split = _split(lo, points, self.x_of(points))
                parts += [(series.key, part.between(low, high)) for series, part in split if series in chosen]
        return _by_key(parts, width)

    def _ranges(self, low: float | None, high: float | None) -> Iterator[tuple[int, int]]:
        """Yield ranges of consecutive entries, (first, last), that can lie in the range of x."""
        start = end = 0
        for first, last, least, greatest in self.extents:
            if (low is None or greatest >= low) and (high is None or least < high):
                if end and first == end + 1:
                    end = last
                    continue
                if end:
                    yield start, end
                start, end = first, last
        if end:
            yield start, end


def _by_key(parts: list[tuple[str, Summary]], width: float) -> dict[str, Summary]:
    gathered: dict[str, list[Summary]] = {}
    for key, part in parts:
        gathered.setdefault(key, []).append(part)
    return {key: downsampling.reduce(Summary.joined(summaries), width) for key, summaries in sorted(gathered.items())}


def _exactly(job_id: uuid.UUID, first: int, last: int) -> Iterator[tuple[int, Points]]:
    """Yield the points with numbers ``first`` to ``last`` exactly; merged blocks can hold others too."""
    cursor = first - 1
    for lo, points in store.read_point_columns(job_id, after=first - 1, upto=last):
        fresh = points.skip(max(0, cursor + 1 - lo)).first(last - max(cursor, lo - 1))
        if len(fresh):
            yield max(lo, cursor + 1), fresh
        cursor = lo + len(points) - 1


def _split(lo: int, points: Points, x: Floats) -> Iterator[tuple[Series, Summary]]:
    """Yield the points of a block by series."""
    seq = np.arange(lo, lo + len(points), dtype=np.int64)
    if len(points.keys) == 1 and len(points.sources) == 1:
        yield Series(points.keys[0], points.sources[0]), Summary.of_points(x, points.values, seq)
        return
    group = points.source.astype(np.int64) * len(points.keys) + points.key
    # One stable sort groups the points of each series and keeps their order.
    order = np.argsort(group, kind="stable")
    group, x, values, seq = group[order], x[order], points.values[order], seq[order]
    edges = [0, *(np.flatnonzero(np.diff(group)) + 1).tolist(), len(group)]
    for start, end in pairwise(edges):
        number = int(group[start])
        series = Series(points.keys[number % len(points.keys)], points.sources[number // len(points.keys)])
        yield series, Summary.of_points(x[start:end], values[start:end], seq[start:end])


class _View:
    """Cached metrics of one job in this process. All attributes except ``rows`` are used under ``lock``."""

    def __init__(self, job_id: uuid.UUID) -> None:
        self.job_id = job_id
        self.lock = threading.Lock()
        self.cursor = 0
        # Rows of all axes, for other threads: they must not read the axes, which grow under the lock.
        self.rows = 0
        self._axes: dict[str, _Axis] = {}

    def axis(self, name: str) -> _Axis:
        """Return the axis. The first call reads all points up to the cursor."""
        if name not in self._axes:
            axis = _Axis(self.job_id, name, self._origin() if name == "elapsed" else 0.0)
            if not self.cursor:
                # Without a first point there is no origin yet: the axis is not cached.
                return axis
            for lo, points in _exactly(self.job_id, 1, self.cursor):
                axis.add(lo, points)
            self._axes[name] = axis
            self._count()
        return self._axes[name]

    def read_on(self) -> None:
        """Read the entries after the cursor."""
        last = store.head(self.job_id, "metrics").last
        if last > self.cursor and self._axes:
            try:
                self._take(last)
            except Exception:
                # Some points are added already: drop the axes, so that no point counts twice.
                self._axes.clear()
                raise
            finally:
                self._count()
        self.cursor = last

    def _take(self, last: int) -> None:
        for lo, points in _exactly(self.job_id, self.cursor + 1, last):
            for axis in self._axes.values():
                axis.add(lo, points)

    def _count(self) -> None:
        self.rows = sum(len(rows) for axis in self._axes.values() for rows in axis.series.values())

    def _origin(self) -> float:
        first = store.read_points(self.job_id, limit=1)
        return first[0].time if first else 0.0


class _Views:
    """Views of this process, in order of last use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._views: OrderedDict[uuid.UUID, _View] = OrderedDict()

    def of(self, job_id: uuid.UUID) -> _View:
        with self._lock:
            view = self._views.setdefault(job_id, _View(job_id))
            self._views.move_to_end(job_id)
            while len(self._views) > 1 and sum(view.rows for view in self._views.values()) > CACHED_ROWS:
                self._views.popitem(last=False)
            return view

    def clear(self) -> None:
        with self._lock:
            self._views.clear()


_views = _Views()


def forget() -> None:
    """Empty the cache of this process; the next chart reads the blocks again."""
    _views.clear()
