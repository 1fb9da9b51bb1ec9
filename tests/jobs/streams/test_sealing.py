"""Merging blocks changes nothing that a reader can see."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from jobs.states import JobState
from jobs.streams import sealing, store
from jobs.streams.models import Block, StreamHead
from portal.common.time import now
from tests.jobs.streams.conftest import Writer

MANY = sealing.MANY_BLOCKS


def seqs(writer: Writer, after: int = 0) -> list[int]:
    return [line.seq for line in store.read_logs(writer.job.pk, after=after, limit=10_000).lines]


@pytest.fixture
def many(writer: Writer) -> Writer:
    """As many blocks as are merged, of two lines each, of two replicas in turn."""
    other = writer.other("trainer-1")
    for number in range(MANY):
        (writer if number % 2 else other).lines(number // 2 * 2 + 1, number // 2 * 2 + 2)
    return writer


def test_many_blocks_become_one_and_read_the_same(many: Writer) -> None:
    before = store.read_logs(many.job.pk, limit=10_000)
    assert sealing.seal_due(now()) == 1
    assert Block.objects.count() == 1
    assert store.read_logs(many.job.pk, limit=10_000) == before


def test_a_reader_in_the_middle_goes_on_where_it_was(many: Writer) -> None:
    blocks = store._blocks(many.job.pk, "logs", 0)
    read = next(blocks)
    sealing.seal_due(now())
    assert read.hi == 2
    assert seqs(many, after=read.hi) == list(range(3, 2 * MANY + 1))


def test_few_blocks_of_a_running_job_are_left_alone(writer: Writer) -> None:
    writer.lines(1, 1)
    writer.lines(2, 2)
    assert sealing.seal_due(now()) == 0
    assert Block.objects.count() == 2


def test_a_closed_stream_is_sealed_however_few_its_blocks_are(writer: Writer) -> None:
    writer.lines(1, 1)
    writer.lines(2, 2)
    writer.points(1, 1)
    writer.points(2, 2)
    store.close(writer.job.pk)
    assert sealing.seal_due(now()) == 2
    assert Block.objects.count() == 2
    assert seqs(writer) == [1, 2]
    assert [point.seq for point in store.read_points(writer.job.pk)] == [1, 2]


def test_lines_after_the_seal_follow_it(many: Writer) -> None:
    sealing.seal_due(now())
    many.lines(MANY + 1, MANY + 1)
    assert seqs(many) == list(range(1, 2 * MANY + 2))


def test_a_hole_stays_a_hole(many: Writer) -> None:
    Block.objects.filter(lo=3).delete()
    sealing.seal_due(now())
    assert seqs(many) == [1, 2, *range(5, 2 * MANY + 1)]


def test_a_seal_that_somebody_else_did_meanwhile_is_given_up(many: Writer) -> None:
    stale = StreamHead.objects.get()
    blocks = list(Block.objects.order_by("lo"))
    sealing.seal_due(now())
    assert not sealing._swap(stale, blocks, [])


def test_nothing_due_costs_two_queries(writer: Writer) -> None:
    writer.lines(1, 1)
    with CaptureQueriesContext(
        connection,
    ) as queries:
        assert sealing.seal_due(now()) == 0
    assert len(queries) == 2


def test_the_streams_of_a_job_that_ended_long_ago_are_closed(writer: Writer) -> None:
    writer.lines(1, 1)
    job = writer.job
    job.state, job.finished = JobState.FAILED, now() - timedelta(minutes=5)
    job.save()
    sealing.seal_due(now())
    assert store.head(job.pk, "logs") == store.Head(last=1, closed=True)
