"""Store of the streams: exactly once and in order for repeated, late and reordered batches."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from django.db import connection, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.messages import jobs as messages
from jobs.models.streams import Block, Source, StreamHead
from jobs.streams import store
from jobs.streams.entries import Gap
from jobs.streams.tailer import in_thread
from portal.common.doorbell import Doorbell
from tests.contracts.doorbell_contract import run
from tests.factories import make_attempt
from tests.jobs.streams.conftest import Writer
from tests.messages import pattern as pattern_of
from tests.properties import examples


def texts(writer: Writer, **query: object) -> list[str]:
    return [line.text for line in store.read_logs(writer.job.pk, limit=10_000, **query).lines]  # type: ignore[arg-type]


def numbered(writer: Writer, first: int, last: int) -> list[str]:
    return [f"{writer.replica} {number}" for number in range(first, last + 1)]


# --- Appending -------------------------------------------------------------------------------------------------------
# (shift, count): each batch begins ``shift`` entries after (or before) the next expected one.
batches = st.lists(st.tuples(st.integers(-12, 1), st.integers(0, 12)), min_size=1, max_size=25)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=examples(40))
@given(sent=batches)
def test_repeated_overlapping_and_reordered_batches_store_each_line_once(
    writer: Writer, sent: list[tuple[int, int]]
) -> None:
    with transaction.atomic():
        last = 0
        for shift, count in sent:
            first = max(1, last + 1 + shift)
            if first > last + 1:
                with pytest.raises(Gap) as gap:
                    writer.lines(first, first + count - 1)
                assert gap.value.last == last
            else:
                last = max(last, first + count - 1)
                assert writer.lines(first, first + count - 1) == last
        assert texts(writer) == numbered(writer, 1, last)
        assert [line.seq for line in store.read_logs(writer.job.pk, limit=10_000).lines] == list(range(1, last + 1))
        transaction.set_rollback(True)


def test_of_an_overlapping_batch_only_the_new_part_is_taken(writer: Writer) -> None:
    writer.lines(1, 3)
    assert writer.lines(2, 5) == 5
    assert writer.lines(1, 4) == 5
    assert texts(writer) == numbered(writer, 1, 5)


def test_two_replicas_number_for_themselves_and_share_the_sequence(writer: Writer) -> None:
    other = writer.other("trainer-1")
    writer.lines(1, 2)
    other.lines(1, 2)
    writer.lines(3, 3)
    assert texts(writer) == ["trainer-0 1", "trainer-0 2", "trainer-1 1", "trainer-1 2", "trainer-0 3"]


def test_a_new_attempt_begins_its_numbering_at_one(writer: Writer) -> None:
    writer.lines(1, 2)
    again = Writer(make_attempt(writer.job, 2))
    assert again.lines(1, 2) == 2
    assert len(texts(writer)) == 4


def test_lines_and_points_do_not_share_numbers(writer: Writer) -> None:
    writer.lines(1, 3)
    assert writer.points(1, 2) == 2
    assert [point.seq for point in store.read_points(writer.job.pk)] == [1, 2]


def test_a_rolled_back_batch_is_not_taken(writer: Writer) -> None:
    with transaction.atomic():
        writer.lines(1, 3)
        transaction.set_rollback(True)
    assert (StreamHead.objects.count(), Source.objects.count(), Block.objects.count()) == (0, 0, 0)
    assert writer.lines(1, 3) == 3


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "action",
    [
        lambda writer: (writer.lines(1, 1), writer.points(1, 1)),
        lambda writer: store.close(writer.job.pk),
    ],
    ids=["taken", "closed"],
)
def test_readers_that_wait_for_a_stream_are_woken(writer: Writer, action: Callable[[Writer], object]) -> None:
    async def scenario(doorbell: Doorbell) -> None:
        logs, metrics = f"logs:{writer.job.pk}", f"metrics:{writer.job.pk}"
        with doorbell.subscribe(logs) as of_logs, doorbell.subscribe(metrics) as of_metrics:
            await in_thread(action, writer)
            assert await of_logs.wait(60)
            assert await of_metrics.wait(60)

    run(scenario)


def test_late_lines_after_the_end_are_stored(writer: Writer) -> None:
    writer.lines(1, 1)
    store.close(writer.job.pk)
    writer.lines(2, 2)
    assert texts(writer) == numbered(writer, 1, 2)


@pytest.mark.django_db(transaction=True)
def test_two_writers_at_once_lose_and_double_nothing(writer: Writer) -> None:
    """Two threads of one replica's agent (a retry overtakes the first call) and a second replica write concurrently."""

    def send(by: Writer) -> None:
        for first in range(1, 60, 3):
            for _ in range(50):
                try:
                    by.lines(first, first + 2)
                    break
                except Gap:
                    continue
        connection.close()

    writers = [writer, writer, writer.other("trainer-1")]
    threads = [threading.Thread(target=send, args=(each,)) for each in writers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for each in writers:
        assert texts(writer, replica=each.replica) == numbered(each, 1, 60)
    assert [line.seq for line in store.read_logs(writer.job.pk, limit=1000).lines] == list(range(1, 121))


# --- Reading ---------------------------------------------------------------------------------------------------------
@pytest.fixture
def hundred(writer: Writer) -> Writer:
    """Append a hundred lines in blocks of seven."""
    for first in range(1, 101, 7):
        writer.lines(first, min(first + 6, 100))
    return writer


@pytest.mark.parametrize("limit", [1, 3, 7, 10, 100])
def test_pages_forwards_cover_the_whole_log(hundred: Writer, limit: int) -> None:
    found, after, more = [], 0, True
    while more:
        page = store.read_logs(hundred.job.pk, after=after, limit=limit)
        found += [line.seq for line in page.lines]
        assert page.first == after + 1
        after, more = page.last, page.more
    assert found == list(range(1, 101))


@pytest.mark.parametrize("limit", [1, 3, 7, 10, 100])
def test_pages_backwards_cover_the_whole_log(hundred: Writer, limit: int) -> None:
    found: list[int] = []
    before, more = 101, True
    while more:
        page = store.read_logs(hundred.job.pk, before=before, limit=limit)
        found = [line.seq for line in page.lines] + found
        assert page.last == before - 1
        before, more = page.first, page.more
    assert found == list(range(1, 101))


def test_a_page_between_two_cursors_has_the_lines_between(hundred: Writer) -> None:
    page = store.read_logs(hundred.job.pk, after=10, before=15)
    assert [line.seq for line in page.lines] == [11, 12, 13, 14]
    assert not page.more


def test_an_empty_page_does_not_move_the_cursor(hundred: Writer) -> None:
    page = store.read_logs(hundred.job.pk, after=100)
    assert (page.lines, page.first, page.last, page.more) == ([], 101, 100, False)


def test_a_filtered_page_moves_the_cursor_past_other_lines(hundred: Writer) -> None:
    page = store.read_logs(hundred.job.pk, replica="trainer-9")
    assert (page.lines, page.last, page.more) == ([], 100, False)


def test_points_are_read_strictly_after_the_cursor(writer: Writer) -> None:
    writer.points(1, 10)
    writer.points(11, 20)
    points = store.read_points(writer.job.pk, after=8, limit=5)
    assert [(point.seq, point.step, point.key, point.replica) for point in points] == [
        (number, float(number), "cost", "trainer-0") for number in range(9, 14)
    ]


# --- Searching -------------------------------------------------------------------------------------------------------
def test_text_is_found_without_regard_to_case(hundred: Writer) -> None:
    assert texts(hundred, text="TRAINER-0 42") == ["trainer-0 42"]


def test_a_pattern_is_found(hundred: Writer) -> None:
    assert texts(hundred, regex=r" 4[23]$") == ["trainer-0 42", "trainer-0 43"]


@pytest.mark.parametrize("pattern", ["(", "[", "*", "a{99999999999999}", "(?P<n", "\0", "a" * 501])
def test_a_bad_pattern_is_refused(hundred: Writer, pattern: str) -> None:
    with pytest.raises(store.search.BadPattern):
        texts(hundred, regex=pattern)


def test_an_explosive_pattern_is_stopped(writer: Writer) -> None:
    store.append_logs(
        job_id=writer.job.pk, attempt=writer.attempt, replica="trainer-0", first=1, lines=[(0.0, "stdout", "a" * 64)]
    )
    with pytest.raises(store.search.BadPattern, match=pattern_of(messages.PATTERN_TOO_SLOW)):
        texts(writer, regex="(a+)+b", seconds=0.1)


# --- The deadline of a page ------------------------------------------------------------------------------------------
FILTERS: dict[str, dict[str, object]] = {
    "replica": {"replica": "trainer-9"},
    "since": {"since": 1e12},
    "text": {"text": "nowhere"},
    "regex": {"regex": "nowhere"},
}


@pytest.mark.parametrize("query", FILTERS.values(), ids=list(FILTERS))
def test_a_filtered_page_past_its_deadline_stops_after_a_block_and_sets_more(
    hundred: Writer, query: dict[str, object]
) -> None:
    page = store.read_logs(hundred.job.pk, seconds=0, **query)  # type: ignore[arg-type]
    assert (page.lines, page.last, page.more) == ([], 7, True)


@pytest.mark.parametrize("query", FILTERS.values(), ids=list(FILTERS))
def test_a_filtered_page_backwards_past_its_deadline_stops_after_a_block_and_sets_more(
    hundred: Writer, query: dict[str, object]
) -> None:
    page = store.read_logs(hundred.job.pk, before=101, seconds=0, **query)  # type: ignore[arg-type]
    assert (page.lines, page.first, page.more) == ([], 99, True)


def test_a_page_without_a_filter_has_no_deadline(hundred: Writer) -> None:
    assert len(store.read_logs(hundred.job.pk, limit=100, seconds=0).lines) == 100


def test_pages_past_their_deadline_cover_the_whole_log_together(hundred: Writer) -> None:
    hundred.other("trainer-1").lines(1, 3)
    found, after, more = [], 0, True
    while more:
        page = store.read_logs(hundred.job.pk, after=after, replica="trainer-1", seconds=0)
        found += [line.text for line in page.lines]
        after, more = page.last, page.more
    assert found == ["trainer-1 1", "trainer-1 2", "trainer-1 3"]


def test_since_selects_lines_of_that_time_and_later(hundred: Writer) -> None:
    page = store.read_logs(hundred.job.pk, since=98.0, limit=100)
    assert [line.seq for line in page.lines] == [98, 99, 100]
