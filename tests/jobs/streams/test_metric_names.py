"""Limit on the metric names of a job, and the treatment of points beyond it."""

from __future__ import annotations

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from jobs.messages import jobs as messages
from jobs.models import JobEvent
from jobs.models.streams import MetricNames
from jobs.streams import rollups, store
from tests.factories import make_attempt
from tests.jobs.streams.conftest import Writer


@pytest.fixture
def three(writer: Writer, settings: Settings) -> Writer:
    """Limit jobs to three names; return a writer."""
    settings.METRIC_NAMES = 3
    return writer


def write(writer: Writer, first: int, *keys: str) -> int:
    """Append a point of each name, numbered from ``first`` on."""
    rows = [(1e9 + place, float(place), key, 1.0) for place, key in enumerate(keys)]
    return store.append_metrics(
        job_id=writer.job.pk, attempt=writer.attempt, replica=writer.replica, first=first, points=rows
    )


def kept(writer: Writer) -> list[str]:
    return [point.key for point in store.read_points(writer.job.pk)]


def log(writer: Writer) -> list[str]:
    return [line.text for line in store.read_logs(writer.job.pk).lines]


def test_names_within_the_limit_are_stored(three: Writer) -> None:
    write(three, 1, "a", "b", "c")
    assert (kept(three), log(three)) == (["a", "b", "c"], [])


@pytest.mark.invariant("A job has a bounded number of metric names.")
def test_points_of_a_name_too_many_are_left_out_and_count_as_taken(three: Writer) -> None:
    assert write(three, 1, "a", "b", "c", "d", "a") == 5
    assert kept(three) == ["a", "b", "c", "a"]
    assert write(three, 6, "e", "b") == 7
    assert kept(three) == ["a", "b", "c", "a", "b"]


def test_a_batch_of_refused_names_alone_makes_no_block_and_is_taken(three: Writer) -> None:
    write(three, 1, "a", "b", "c")
    assert write(three, 4, "d", "e") == 5
    assert store.head(three.job.pk, "metrics").last == 3


def test_a_repeated_batch_with_a_refused_name_changes_nothing(three: Writer) -> None:
    write(three, 1, "a", "b", "c", "d")
    assert write(three, 1, "a", "b", "c", "d") == 4
    assert kept(three) == ["a", "b", "c"]


def test_the_log_and_the_timeline_report_it_once(three: Writer) -> None:
    write(three, 1, "a", "b", "c", "d")
    write(three, 5, "e", "f")
    write(Writer(make_attempt(three.job, 2)), 1, "g")
    [line] = log(three)
    assert line == messages.METRIC_NAMES_FULL(count=3, name="d")
    assert list(JobEvent.objects.values_list("kind", "text")) == [("metrics", line)]


def test_the_names_of_all_replicas_and_attempts_count_together(three: Writer) -> None:
    write(three, 1, "a", "b")
    write(three.other("trainer-1"), 1, "b", "c", "d")
    write(Writer(make_attempt(three.job, 2)), 1, "e", "a")
    assert kept(three) == ["a", "b", "b", "c", "a"]


def test_a_rolled_back_batch_uses_no_name(three: Writer) -> None:
    with transaction.atomic():
        write(three, 1, "x", "y", "z")
        transaction.set_rollback(True)
    write(three, 1, "a", "b", "c")
    assert kept(three) == ["a", "b", "c"]


@pytest.mark.django_db(transaction=True)
def test_known_names_query_no_table(three: Writer) -> None:
    write(three, 1, "a", "b")
    with CaptureQueriesContext(connection) as queries:
        write(three, 3, "b", "a")
    assert not [query for query in queries if MetricNames._meta.db_table in query["sql"]]


@pytest.mark.invariant("A job has a bounded number of metric names.")
@pytest.mark.django_db(transaction=True)
def test_another_process_with_an_old_cache_stays_within_the_bound(three: Writer) -> None:
    write(three, 1, "a")
    MetricNames.objects.update(names=["a", "b", "c"])
    write(three, 2, "d", "b")
    assert kept(three) == ["a", "b"]


def test_a_chart_of_many_names_is_made_of_one_sorted_block(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: each name scanned the whole block, so the cost was names times points."""
    write(writer, 1, *(f"name-{place % 500}" for place in range(2000)))
    looked_at = 0
    of_points = rollups.Summary.of_points.__func__  # type: ignore[attr-defined]

    def counting(cls: type, x: object, values: object, seq: object) -> object:
        nonlocal looked_at
        assert x.base is not None  # type: ignore[attr-defined]  # a slice of the sorted columns, not a selection
        looked_at += len(x)  # type: ignore[arg-type]
        return of_points(cls, x, values, seq)

    monkeypatch.setattr(rollups.Summary, "of_points", classmethod(counting))
    chart = rollups.buckets(writer.job.pk, ["name-7"])
    assert looked_at == 2000
    assert chart.series["name-7"].x.tolist() == [7.0, 507.0, 1007.0, 1507.0]


def test_the_order_of_points_within_a_series_is_that_of_their_numbers(writer: Writer) -> None:
    rows = [(1e9, 1.0, key, value) for key, value in [("a", 3.0), ("b", 9.0), ("a", 5.0), ("a", 4.0)]]
    store.append_metrics(job_id=writer.job.pk, attempt=writer.attempt, replica="trainer-0", first=1, points=rows)
    assert rollups.buckets(writer.job.pk, ["a"]).series["a"].last.tolist() == [4.0]
