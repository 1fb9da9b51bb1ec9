"""Reduction to buckets equals a plain loop over the points."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.streams.downsampling import Summary, reduce, width_for

values = st.one_of(st.floats(-1e6, 1e6), st.just(math.nan), st.just(math.inf), st.just(-math.inf))
rows = st.lists(st.tuples(st.integers(0, 200).map(float), values), min_size=1, max_size=120)
widths = st.integers(-2, 8).map(lambda exponent: 2.0**exponent)

Row = tuple[float, float]


def summary_of(points: list[Row]) -> Summary:
    x, value = zip(*points, strict=True)
    return Summary.of_points(np.array(x), np.array(value), np.arange(1, len(points) + 1))


def table(summary: Summary) -> list[tuple[float, ...]]:
    """Return the columns as rows; -0.5 replaces NaN, so that equal tables compare equal."""
    columns = (summary.x, summary.low, summary.high, summary.last, summary.count, summary.nan)
    return [tuple(-0.5 if math.isnan(item) else float(item) for item in row) for row in zip(*columns, strict=True)]


def counted(points: list[Row], width: float) -> list[tuple[float, ...]]:
    gathered: dict[float, list[Row]] = {}
    for point in points:
        gathered.setdefault(point[0] // width, []).append(point)
    return [_bucket(gathered[number]) for number in sorted(gathered)]


def _bucket(points: list[Row]) -> tuple[float, ...]:
    held = [value for _, value in points if not math.isnan(value)]
    edges = (min(held), max(held), held[-1]) if held else (-0.5, -0.5, -0.5)
    return (min(x for x, _ in points), *edges, float(len(held)), float(len(points) - len(held)))


@given(rows, widths)
def test_buckets_equal_those_of_a_plain_loop(points: list[Row], width: float) -> None:
    assert table(reduce(summary_of(points), width)) == counted(points, width)


@given(rows, widths, st.integers(1, 4))
def test_coarse_from_fine_is_coarse_from_points(points: list[Row], width: float, doublings: int) -> None:
    coarse = width * 2**doublings
    fine = reduce(summary_of(points), width)
    assert table(reduce(fine, coarse)) == table(reduce(summary_of(points), coarse))


@given(rows, rows, widths)
def test_buckets_stay_in_place_while_the_run_grows(before: list[Row], after: list[Row], width: float) -> None:
    later = [(x + 256, value) for x, value in after]
    grown = table(reduce(summary_of([*before, *later]), width))
    assert grown[: len(counted(before, width))] == counted(before, width)


@given(rows, st.data())
def test_parts_in_any_order_give_the_same_buckets(points: list[Row], data: st.DataObject) -> None:
    whole = summary_of(points)
    cut = data.draw(st.integers(0, len(points)))
    halves = [
        Summary(*(getattr(whole, name)[piece] for name in ("x", "low", "high", "last", "seq", "count", "nan")))
        for piece in (slice(cut, None), slice(0, cut))
    ]
    assert table(reduce(Summary.joined(halves), 16.0)) == counted(points, 16.0)


@given(st.floats(1e-3, 1e9), st.integers(1, 5000))
def test_the_width_is_the_least_power_of_two_that_is_enough(span: float, buckets: int) -> None:
    width = width_for(span, buckets)
    assert math.log2(width).is_integer()
    assert span / width <= buckets * (1 + 1e-9)
    assert width == 2.0**-20 or span / (width / 2) > buckets * (1 - 1e-9)


@pytest.mark.parametrize("width", [1.0, 64.0, 4096.0, 2.0**20])
def test_a_spike_of_one_point_is_visible_at_every_zoom(width: float) -> None:
    points = [(float(step), 99.0 if step == 777 else 1.0) for step in range(10_000)]
    assert reduce(summary_of(points), width).high.max() == 99.0
