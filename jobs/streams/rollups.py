"""Charts: the points of a job in at most about a thousand buckets, whatever the length of the run.

Each process keeps for a job that is looked at a summary of every series (metric, attempt, replica) on each axis that
was asked for. It reads only blocks that are new since it looked last, by the stream's cursor: so it is right after a
restart and beside other processes. A series that has grown past ``SERIES_ROWS`` is reduced to buckets of twice the
width (``reduction``); the finer buckets of a zoom are then made from the blocks that hold that part of x. Jobs that
were not looked at for longest are forgotten when memory is short.
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
    """Buckets of each metric. ``next``: the last entry that is in them; what is read after it is new. ``left_out``:
    metrics that were asked for and have no buckets here, because others fill the chart."""

    series: dict[str, Summary]
    x: str
    width: float
    next: int
    left_out: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As the API gives it."""
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
    """Null where a bucket holds no number."""
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
    """The metrics ``keys`` (None: all) between ``from_`` and ``to``, in buckets whose width is a power of two.

    ``x`` is ``step``, ``elapsed`` (seconds since the job's first point) or ``wall`` (unix time). A bucket at the edge
    is whole: it may begin before ``from_``. A point counts in its bucket however narrow it is beside the rest.
    ``most`` bounds the metrics; those that were reported first are shown.
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
    """The range, widened to whole buckets."""
    low = None if from_ is None else float(np.floor(from_ / width) * width)
    high = None if to is None else float((np.floor(to / width) + 1) * width)
    return low, high


@dataclass(frozen=True)
class Series:
    """One metric of one writer."""

    key: str
    writer: WriterId


class _Rows:
    """The summary of one series on one axis; ``width`` of its buckets, 0 while every point is a row."""

    def __init__(self) -> None:
        self.width = 0.0
        self.low, self.high = np.inf, -np.inf
        self._whole = downsampling.empty()
        self._parts: list[Summary] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, part: Summary) -> None:
        """Take points in; make room when there are too many rows."""
        self.low, self.high = min(self.low, float(part.x.min())), max(self.high, float(part.x.max()))
        self._parts.append(part)
        self._count += len(part)
        if self._count > SERIES_ROWS:
            self._coarsen()

    def summary(self) -> Summary:
        """All rows, joined once and kept so."""
        if self._parts:
            self._whole = Summary.joined([part for part in (self._whole, *self._parts) if len(part)])
            self._parts = []
        return self._whole

    def _coarsen(self) -> None:
        # Halving leaves room for as many points again: each row is moved a constant number of times.
        rows = self.summary()
        width = max(self.width, downsampling.width_for(self.high - self.low, SERIES_ROWS))
        rows = downsampling.reduce(rows, width)
        while len(rows) > SERIES_ROWS // 2:
            width *= 2
            rows = downsampling.reduce(rows, width)
        self.width, self._whole, self._count = width, rows, len(rows)


@dataclass
class _Axis:
    """The series of a job along one x."""

    job_id: uuid.UUID
    name: str
    origin: float
    series: dict[Series, _Rows] = field(default_factory=dict)
    # For each block that was read: its first and last entry, and the least and greatest x in it.
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
        """Reduce what is kept."""
        parts = [(series.key, rows.summary().between(low, high)) for series, rows in chosen.items()]
        return _by_key(parts, width)

    def from_blocks(
        self, chosen: dict[Series, _Rows], width: float, low: float | None, high: float | None
    ) -> dict[str, Summary]:
        """Reduce the points themselves, from the blocks that reach into the range."""
        parts = []
        for first, last in self._ranges(low, high):
            for lo, points in _exactly(self.job_id, first, last):
                split = _split(lo, points, self.x_of(points))
                parts += [(series.key, part.between(low, high)) for series, part in split if series in chosen]
        return _by_key(parts, width)

    def _ranges(self, low: float | None, high: float | None) -> Iterator[tuple[int, int]]:
        """Stretches of consecutive entries that may lie in the range of x."""
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
    """The points from the first to the last number; blocks may hold others besides, when they were merged."""
    cursor = first - 1
    for lo, points in store.read_point_columns(job_id, after=first - 1, upto=last):
        fresh = points.skip(max(0, cursor + 1 - lo)).first(last - max(cursor, lo - 1))
        if len(fresh):
            yield max(lo, cursor + 1), fresh
        cursor = lo + len(points) - 1


def _split(lo: int, points: Points, x: Floats) -> Iterator[tuple[Series, Summary]]:
    """The points of a block by series."""
    seq = np.arange(lo, lo + len(points), dtype=np.int64)
    if len(points.keys) == 1 and len(points.sources) == 1:
        yield Series(points.keys[0], points.sources[0]), Summary.of_points(x, points.values, seq)
        return
    group = points.source.astype(np.int64) * len(points.keys) + points.key
    # Sorted once, the points of each series lie together and in their order.
    order = np.argsort(group, kind="stable")
    group, x, values, seq = group[order], x[order], points.values[order], seq[order]
    edges = [0, *(np.flatnonzero(np.diff(group)) + 1).tolist(), len(group)]
    for start, end in pairwise(edges):
        number = int(group[start])
        series = Series(points.keys[number % len(points.keys)], points.sources[number // len(points.keys)])
        yield series, Summary.of_points(x[start:end], values[start:end], seq[start:end])


class _View:
    """What this process knows of one job's metrics. Everything but ``rows`` is used under ``lock``."""

    def __init__(self, job_id: uuid.UUID) -> None:
        self.job_id = job_id
        self.lock = threading.Lock()
        self.cursor = 0
        # Rows of all axes, for other threads: they must not look into the axes, which grow under the lock.
        self.rows = 0
        self._axes: dict[str, _Axis] = {}

    def axis(self, name: str) -> _Axis:
        """The axis; where it is asked for the first time, everything up to the cursor is read for it."""
        if name not in self._axes:
            axis = _Axis(self.job_id, name, self._origin() if name == "elapsed" else 0.0)
            if not self.cursor:
                # Without a first point there is no origin yet: nothing to keep.
                return axis
            for lo, points in _exactly(self.job_id, 1, self.cursor):
                axis.add(lo, points)
            self._axes[name] = axis
            self._count()
        return self._axes[name]

    def read_on(self) -> None:
        """Take in what has come since."""
        last = store.head(self.job_id, "metrics").last
        if last > self.cursor and self._axes:
            try:
                self._take(last)
            except Exception:
                # Half of it is in: begin afresh rather than count points twice.
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
    """The views of this process, the one that was used last at the end."""

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
    """Forget all that is kept; the next chart reads it again."""
    _views.clear()
