"""Compaction: merging blocks does not change the content that readers get."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from jobs.lifecycle.states import JobState
from jobs.maintenance import statistics, stream_compaction
from jobs.models.streams import Block, StreamHead
from jobs.streams import store
from jobs.streams.block_codec import SEALED
from portal.common.clock import now
from tests.factories import make_attempt, make_job
from tests.jobs.streams.conftest import Writer

MANY = stream_compaction.MANY_BLOCKS


def seqs(writer: Writer, after: int = 0) -> list[int]:
    return [line.seq for line in store.read_logs(writer.job.pk, after=after, limit=10_000).lines]


@pytest.fixture
def many(writer: Writer) -> Writer:
    """Return a writer with as many blocks as are merged at once, of two lines each, of two replicas in turn."""
    other = writer.other("trainer-1")
    for number in range(MANY):
        (writer if number % 2 else other).lines(number // 2 * 2 + 1, number // 2 * 2 + 2)
    return writer


def test_many_blocks_become_one_and_read_the_same(many: Writer) -> None:
    before = store.read_logs(many.job.pk, limit=10_000)
    assert stream_compaction.seal_due(now()) == 1
    assert Block.objects.count() == 1
    assert store.read_logs(many.job.pk, limit=10_000) == before


def test_a_reader_in_the_middle_goes_on_where_it_was(many: Writer) -> None:
    blocks = store._blocks(many.job.pk, "logs", 0)
    read = next(blocks)
    stream_compaction.seal_due(now())
    assert read.hi == 2
    assert seqs(many, after=read.hi) == list(range(3, 2 * MANY + 1))


def test_few_blocks_of_a_running_job_are_left_alone(writer: Writer) -> None:
    writer.lines(1, 1)
    writer.lines(2, 2)
    assert stream_compaction.seal_due(now()) == 0
    assert Block.objects.count() == 2


def test_a_closed_stream_is_sealed_however_few_its_blocks_are(writer: Writer) -> None:
    writer.lines(1, 1)
    writer.lines(2, 2)
    writer.points(1, 1)
    writer.points(2, 2)
    store.close(writer.job.pk)
    assert stream_compaction.seal_due(now()) == 2
    assert Block.objects.count() == 2
    assert seqs(writer) == [1, 2]
    assert [point.seq for point in store.read_points(writer.job.pk)] == [1, 2]


def test_a_closed_stream_of_one_block_is_packed_as_tightly_as_others(writer: Writer) -> None:
    writer.points(1, 1)
    store.close(writer.job.pk)
    stream_compaction.seal_due(now())
    (payload,) = Block.objects.filter(kind="metrics").values_list("payload", flat=True)
    assert bytes(payload)[0] == SEALED
    assert [point.seq for point in store.read_points(writer.job.pk)] == [1]


def test_lines_after_the_seal_follow_it(many: Writer) -> None:
    stream_compaction.seal_due(now())
    many.lines(MANY + 1, MANY + 1)
    assert seqs(many) == list(range(1, 2 * MANY + 2))


def test_a_hole_stays_a_hole(many: Writer) -> None:
    Block.objects.filter(lo=3).delete()
    stream_compaction.seal_due(now())
    assert seqs(many) == [1, 2, *range(5, 2 * MANY + 1)]


def test_a_seal_done_by_another_process_meanwhile_is_given_up(many: Writer) -> None:
    stale = StreamHead.objects.get()
    blocks = list(Block.objects.order_by("lo"))
    stream_compaction.seal_due(now())
    assert not stream_compaction._swap(stale, blocks, [])


def test_a_block_that_came_while_others_were_merged_is_merged_later(many: Writer) -> None:
    head = StreamHead.objects.get()
    blocks = list(Block.objects.order_by("lo"))
    many.lines(MANY + 1, MANY + 1)
    assert stream_compaction._swap(head, blocks, [])
    store.close(many.job.pk)
    assert StreamHead.objects.get(kind="logs").unsealed == 1


def test_nothing_due_costs_three_queries(writer: Writer) -> None:
    writer.lines(1, 1)
    with CaptureQueriesContext(
        connection,
    ) as queries:
        assert stream_compaction.seal_due(now()) == 0
    assert len(queries) == 3


@pytest.mark.parametrize("read", [lambda: stream_compaction.seal_due(now()), statistics.unsealed_blocks])
def test_the_heads_of_ended_jobs_are_not_read(writer: Writer, read: Callable[[], object]) -> None:
    """They are two for each job that ever ran, and the sweep looks every second."""
    with CaptureQueriesContext(connection) as queries:
        read()
    plans = []
    with connection.cursor() as cursor:
        for query in queries.captured_queries:
            cursor.execute(f"EXPLAIN QUERY PLAN {query['sql']}")
            plans += [str(step[-1]) for step in cursor.fetchall()]
    heads = [step for step in plans if StreamHead._meta.db_table in step]
    assert heads
    assert all(step.startswith("SEARCH") for step in heads), plans


def test_the_streams_of_a_job_that_ended_long_ago_are_closed(writer: Writer) -> None:
    writer.lines(1, 1)
    job = writer.job
    job.state, job.finished = JobState.FAILED, now() - timedelta(minutes=5)
    job.save()
    stream_compaction.seal_due(now())
    assert store.head(job.pk, "logs") == store.Head(last=1, closed=True)


def end_job(writer: Writer, ago: timedelta) -> None:
    job = writer.job
    job.state, job.finished = JobState.FAILED, now() - ago
    job.save()


def test_the_streams_of_a_job_that_has_just_ended_stay_open_for_its_agents(writer: Writer) -> None:
    writer.lines(1, 1)
    end_job(writer, stream_compaction.CLOSE_AFTER / 2)
    stream_compaction.seal_due(now())
    assert not store.head(writer.job.pk, "logs").closed


def test_streams_that_are_closed_already_take_no_turn_from_forgotten_ones(writer: Writer) -> None:
    other = Writer(make_attempt(make_job(attempt=1)))
    for each in (writer, other):
        each.lines(1, 1)
        end_job(each, timedelta(minutes=5))
    store.close(writer.job.pk)
    stream_compaction.seal_due(now(), limit=1)
    assert store.head(other.job.pk, "logs").closed


# --- Faults ----------------------------------------------------------------------------------------------------------
class CrashingDatabase:
    """Fails at the statement with a given number, as if the process had been killed there."""

    def __init__(self, number: int) -> None:
        self._left = number
        self.crashed = False

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        self._left -= 1
        if self._left == 0:
            self.crashed = True
            raise RuntimeError(f"killed at: {sql}")
        return execute(sql, params, many, context)


@pytest.mark.django_db(transaction=True)
def test_a_crash_at_any_statement_of_sealing_loses_and_doubles_nothing(many: Writer) -> None:
    before = store.read_logs(many.job.pk, limit=10_000)
    number, crashed = 0, True
    while crashed:
        number += 1
        database = CrashingDatabase(number)
        head = StreamHead.objects.get()
        with connection.execute_wrapper(database), contextlib.suppress(RuntimeError):
            stream_compaction._seal(head.pk)
        crashed = database.crashed
        assert store.read_logs(many.job.pk, limit=10_000) == before, f"after a crash at statement {number}"
    assert number > 8
    assert Block.objects.count() == 1


@pytest.fixture
def _no_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_compaction, "_failed", {})


@pytest.mark.usefixtures("_no_failures")
def test_a_stream_that_cannot_be_sealed_keeps_no_other_from_it(many: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Writer(make_attempt(make_job(attempt=1)))
    for number in range(1, MANY + 1):
        broken.lines(number, number)
    poisoned = StreamHead.objects.get(job=broken.job)
    seal = stream_compaction._seal

    def sealed(pk: int) -> None:
        if pk == poisoned.pk:
            raise OverflowError("a block of too many names")
        seal(pk)

    monkeypatch.setattr(stream_compaction, "_seal", sealed)
    stream_compaction.seal_due(now())
    assert Block.objects.filter(job=many.job).count() == 1


@pytest.mark.usefixtures("_no_failures")
def test_a_stream_that_could_not_be_sealed_gives_its_turn_to_others_for_a_while(
    many: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def failing(pk: int) -> None:
        tried.append(pk)
        raise OverflowError("a block of too many names")

    monkeypatch.setattr(stream_compaction, "_seal", failing)
    at = now()
    stream_compaction.seal_due(at)
    stream_compaction.seal_due(at + timedelta(minutes=5))
    assert len(tried) == 1
    stream_compaction.seal_due(at + timedelta(minutes=11))
    assert len(tried) == 2
