"""Roll-ups: the buckets are equal from memory, from blocks, after a restart and after a merge."""

from __future__ import annotations

import threading
from collections.abc import ValuesView

import pytest

from jobs.maintenance import stream_compaction
from jobs.streams import rollups, store
from portal.common.clock import now
from tests.factories import make_attempt, make_job
from tests.jobs.streams.conftest import Writer


def chart(writer: Writer, **query: object) -> rollups.Chart:
    return rollups.buckets(writer.job.pk, ["cost"], **query)  # type: ignore[arg-type]


def rows(found: rollups.Chart) -> list[tuple[float, ...]]:
    cost = found.series["cost"]
    columns = (cost.x, cost.low, cost.high, cost.last, cost.count)
    return [tuple(map(float, row)) for row in zip(*columns, strict=True)]


@pytest.fixture
def long(writer: Writer) -> Writer:
    """Append 4,000 points, with a spike at step 1,234."""
    for first in range(1, 4001, 200):
        writer.points(first, first + 199, values={1234: 99.0})
    return writer


def test_a_short_run_is_shown_point_by_point(writer: Writer) -> None:
    writer.points(1, 5)
    assert rows(chart(writer)) == [(n, 1 / n, 1 / n, 1 / n, 1) for n in range(1, 6)]


def test_a_long_run_has_at_most_the_requested_number_of_buckets(long: Writer) -> None:
    found = chart(long, buckets=100)
    assert (found.width, len(found.series["cost"]), found.next) == (64.0, 63, 4000)
    assert found.series["cost"].count.sum() == 4000


def test_new_points_are_in_the_next_chart(long: Writer) -> None:
    before = rows(chart(long, buckets=100))
    long.points(4001, 4100)
    after = rows(chart(long, buckets=100))
    assert after[: len(before) - 1] == before[:-1]
    assert sum(row[-1] for row in after) == 4100


def test_a_chart_is_the_same_after_a_restart(long: Writer) -> None:
    before = rows(chart(long))
    rollups.forget()
    assert rows(chart(long)) == before


def test_a_chart_is_the_same_after_a_merge_of_blocks(long: Writer) -> None:
    before = rows(chart(long, from_=100, to=900))
    store.close(long.job.pk)
    stream_compaction.seal_due(now())
    rollups.forget()
    assert rows(chart(long, from_=100, to=900)) == before


def test_past_the_memory_for_rows_every_zoom_is_still_exact(long: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = {width: rows(chart(long, **query)) for width, query in _ZOOMS.items()}
    monkeypatch.setattr(rollups, "SERIES_ROWS", 256)
    rollups.forget()
    assert {width: rows(chart(long, **query)) for width, query in _ZOOMS.items()} == exact
    assert all(max(row[2] for row in found) == 99.0 for found in exact.values())


_ZOOMS: dict[str, dict[str, object]] = {
    "whole": {"buckets": 50},
    "half": {"from_": 1000, "to": 3000, "buckets": 1000},
    "near": {"from_": 1200, "to": 1300, "buckets": 1000},
}


def test_attempts_and_replicas_can_be_selected(writer: Writer) -> None:
    writer.points(1, 3)
    writer.other("trainer-1").points(1, 4)
    Writer(make_attempt(writer.job, 2)).points(1, 5)
    assert chart(writer).series["cost"].count.sum() == 12
    assert chart(writer, replica="trainer-1").series["cost"].count.sum() == 4
    assert chart(writer, attempt=2).series["cost"].count.sum() == 5


def test_the_other_axes_are_seconds(writer: Writer) -> None:
    writer.points(1, 3)
    assert chart(writer, x="elapsed").series["cost"].x.tolist() == [0, 1, 2]
    assert chart(writer, x="wall").series["cost"].x.tolist() == [1e9 + 1, 1e9 + 2, 1e9 + 3]


def test_elapsed_requested_before_the_first_point_counts_from_the_first_point(writer: Writer) -> None:
    chart(writer, x="elapsed")
    writer.points(1, 3)
    assert chart(writer, x="elapsed").series["cost"].x.tolist() == [0, 1, 2]


def test_nan_and_infinity_are_counted_and_valid_json(writer: Writer) -> None:
    writer.points(1, 4, values={2: float("nan"), 3: float("inf")})
    cost = chart(writer).to_json()["series"]["cost"]
    assert cost["min"] == [1, None, "Infinity", 0.25]
    assert cost["nan"] == [0, 1, 0, 0]


def test_without_keys_a_chart_has_all_metrics(writer: Writer) -> None:
    writer.points(1, 2)
    writer.points(3, 4, key="accuracy")
    assert list(rollups.buckets(writer.job.pk).series) == ["accuracy", "cost"]


def test_an_empty_job_has_an_empty_chart(writer: Writer) -> None:
    assert chart(writer).to_json() == {
        "series": {},
        "next": 0,
        "x": "step",
        "width": 2.0**-20,
        "left_out": [],
    }


class GuardedSeries(dict[rollups.Series, object]):
    """Series of an axis that raise when they are read without the lock, as if another thread had changed them."""

    def __init__(self, series: dict[rollups.Series, object], lock: threading.Lock) -> None:
        super().__init__(series)
        self._lock = lock

    def values(self) -> ValuesView[object]:
        if not self._lock.locked():
            raise RuntimeError("dictionary changed size during iteration")
        return super().values()


def test_a_chart_of_one_job_does_not_read_the_series_of_another(writer: Writer) -> None:
    writer.points(1, 5)
    chart(writer)
    view = rollups._views.of(writer.job.pk)
    axis = view._axes["step"]
    axis.series = GuardedSeries(axis.series, view.lock)  # type: ignore[assignment,arg-type]
    other = Writer(make_attempt(make_job(attempt=1)))
    other.points(1, 3)
    assert chart(other).next == 3


def test_the_least_recently_used_jobs_are_evicted_from_the_cache(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollups, "CACHED_ROWS", 8)
    others = [Writer(make_attempt(make_job(attempt=1))) for _ in range(2)]
    for each in (writer, *others):
        each.points(1, 5)
        chart(each)
    chart(others[1])
    assert list(rollups._views._views) == [others[1].job.pk]
