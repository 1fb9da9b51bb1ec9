"""Batches are read in the background: in order, within bounds, and no further than the loop goes."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime import contract, dist
from runtime.data.catalogue import read_placed
from runtime.errors import UsageError
from runtime.messages import training as messages
from runtime.trainer.tasks import task_reading
from runtime.trainer.tasks.read_ahead import ReadAhead, Readers, size_of
from runtime.trainer.tasks.task_client import LocalTasks, Task
from tests.faults import datasets
from tests.messages import pattern
from tests.waiting import until

LONG = 30.0
MUCH = 1 << 20
Pass = Callable[[Iterable[Any]], Iterator[Any]]


class Numbers:
    """Returns numbers from 0 on, as arrays of 100 bytes, and records how far it was read."""

    def __init__(self, count: int, bad: int | None = None) -> None:
        self.count, self.bad = count, bad
        self.read = 0
        self.closed = threading.Event()
        self.reached = threading.Condition()

    def __call__(self, wanted: Pass) -> Any:
        try:
            for number in wanted(range(self.count)):
                if number == self.bad:
                    raise ValueError("this one is too much")
                with self.reached:
                    self.read += 1
                    self.reached.notify_all()
                yield np.full(100, number, "u1")
        finally:
            self.closed.set()

    def wait_for(self, read: int) -> None:
        with self.reached:
            assert self.reached.wait_for(lambda: self.read >= read, LONG)


@pytest.fixture
def readers() -> Iterator[Callable[..., Readers]]:
    """Makes readers with a capacity of a number of batches and bytes."""
    made: list[Readers] = []

    def make(most: int = 4, most_bytes: int = MUCH) -> Readers:
        made.append(Readers(most, most_bytes))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_all_comes_in_order(readers):
    assert [item[0] for item in ReadAhead(Numbers(50), readers())] == list(range(50))


@pytest.mark.parametrize(("most", "most_bytes", "waiting"), [(4, 1 << 20, 4), (4, 250, 2), (4, 1, 1)])
def test_no_more_waits_than_is_allowed_in_number_and_in_bytes_and_one_always_may(readers, most, most_bytes, waiting):
    numbers = Numbers(50)
    ahead = ReadAhead(numbers, readers(most, most_bytes))
    numbers.wait_for(waiting + 1)  # the thread has read the last one, and there is no capacity for it
    next(ahead)
    numbers.wait_for(waiting + 2)
    assert numbers.read == waiting + 2
    ahead.stop()


def test_an_error_comes_in_its_place_with_its_own_traceback(readers):
    ahead = ReadAhead(Numbers(50, bad=3), readers())
    assert [next(ahead)[0] for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="too much") as raised:
        next(ahead)
    assert traceback.extract_tb(raised.value.__traceback__)[-1].name == "__call__"
    assert next(ahead, None) is None


def test_closing_early_leaves_no_thread_and_no_open_file():
    numbers, before, reading = Numbers(10**9), threading.active_count(), Readers(4, MUCH)
    ahead = ReadAhead(numbers, reading)
    next(ahead)
    ahead.stop()
    reading.close()
    assert numbers.closed.is_set()
    assert threading.active_count() == before


def test_what_was_read_of_a_task_that_is_given_up_is_dropped(readers):
    numbers = Numbers(10**9)
    ahead = ReadAhead(numbers, readers())
    numbers.wait_for(4)
    ahead.stop()
    assert next(ahead, None) is None
    assert numbers.closed.wait(LONG)


def test_a_wait_for_a_batch_ends_when_the_task_is_dropped(readers):
    go, asked, got = threading.Event(), threading.Event(), []

    def slow(wanted: Pass) -> Any:
        asked.set()
        go.wait(LONG)
        yield from wanted([1])

    ahead = ReadAhead(slow, readers())
    waiting = threading.Thread(target=lambda: got.append(next(ahead, "nothing")))
    waiting.start()
    assert asked.wait(LONG)
    ahead.stop()
    waiting.join(LONG)
    go.set()
    assert got == ["nothing"]


def test_what_the_script_has_set_for_its_thread_holds_beside_it(readers):
    def divide(wanted: Pass) -> Any:
        yield from (np.float32(1) / np.float32(number) for number in wanted([0]))

    with np.errstate(divide="raise"):
        ahead = ReadAhead(divide, readers())
    with pytest.raises(FloatingPointError):
        next(ahead)


def test_the_next_task_is_read_after_this_one_and_they_share_the_capacity(readers):
    these, those, shared = Numbers(2), Numbers(50), readers(4)
    first, second = ReadAhead(these, shared), ReadAhead(those, shared)
    those.wait_for(3)  # two of the first task and two of the second wait, and the thread has read one more
    assert (these.read, those.read) == (2, 3)
    assert [item[0] for item in first] == [0, 1]
    those.wait_for(5)
    second.stop()


def test_of_a_task_that_is_not_begun_records_are_read_and_nothing_is_made_of_them(readers):
    records, made = Numbers(50), []

    def make(wanted: Pass) -> Any:
        for record in wanted(records(iter)):
            made.append(int(record[0]))
            yield record[0]

    ahead = ReadAhead(make, readers(100), before=10)
    records.wait_for(10)
    assert (records.read, made) == (10, [])
    ahead.begin()
    assert list(ahead) == made == list(range(50))


def test_a_task_that_is_never_begun_keeps_nobody_from_being_read(readers):
    shared = readers()
    never, other = ReadAhead(Numbers(50), shared, before=1), ReadAhead(Numbers(50), shared)
    never.stop()
    assert [item[0] for item in other] == list(range(50))


def test_dropped_batches_free_their_capacity(readers):
    dropped, numbers, shared = Numbers(4), Numbers(50), readers(4)
    first = ReadAhead(dropped, shared)
    assert dropped.closed.wait(LONG)
    first.stop()
    second = ReadAhead(numbers, shared)
    numbers.wait_for(5)
    assert [item[0] for item in second] == list(range(50))


def test_a_batch_is_as_large_as_what_it_holds():
    objects = np.array([b"12345678", None], object)
    assert size_of((np.zeros(3, "f4"), {"x": [np.zeros(2, "u1")]})) == 14
    assert size_of(objects) == sys.getsizeof(b"12345678") + sys.getsizeof(None)


# --- In a job alone ---------------------------------------------------------------------------------------------------
TASKS, RECORDS = 2, 200


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dist.Job:
    datasets.make(tmp_path / "data", TASKS, RECORDS)
    monkeypatch.setattr(dist, "_job", None)
    monkeypatch.setattr("sys.excepthook", lambda *error: None)
    monkeypatch.setenv(contract.DATA_PATH, str(tmp_path / "data"))
    return dist.init()


class Decode:
    """Records what it decodes, and on which threads."""

    def __init__(self, bad: int | None = None) -> None:
        self.bad = bad
        self.seen: list[int] = []
        self.threads: set[str] = set()

    def __call__(self, record: Any) -> int:
        self.threads.add(threading.current_thread().name)
        if record[1] == self.bad:
            raise ValueError("this one is too much")
        self.seen.append(record[1])
        return int(record[1])


def reading() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "reading"]


def test_the_batches_are_the_same_whether_they_are_read_ahead_or_not(job):
    of = {
        ahead: [y.tolist() for _x, y in job.steps(job.reader(datasets.NAME, 7, shuffle=50, ahead=ahead), passes=2)]
        for ahead in (0, 1, 4)
    }
    assert of[0] == of[1] == of[4]


@pytest.mark.parametrize(("ahead", "where"), [(4, {"reading"}), (0, {threading.main_thread().name})])
def test_a_decode_runs_in_the_background_unless_the_script_disables_it(job, ahead, where):
    decode = Decode()
    list(job.steps(job.reader(datasets.NAME, 10, decode=decode, ahead=ahead), passes=1))
    assert decode.threads == where


def test_nothing_of_the_next_task_is_decoded_before_this_one_is_done(job):
    decode = Decode()
    for batch in job.steps(job.reader(datasets.NAME, 10, decode=decode), passes=1):
        assert max(decode.seen) < (batch[0] // RECORDS + 1) * RECORDS


@pytest.fixture
def foretelling(job: dist.Job, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[tuple[int, int]]]:
    """Make the source foretell, in the last task of a pass, that the next one begins with task ``first``.

    Return, in order, the passes and tasks of the records that were read.
    """
    read: list[tuple[int, int]] = []

    def begin(first: int) -> list[tuple[int, int]]:
        def coming(_source: LocalTasks) -> tuple[Task, ...]:
            task = job._loop.current.task
            if task.task_id < TASKS - 1:
                return ()
            return (task._replace(pass_id=task.pass_id + 1, task_id=first, epoch=0, chunks=chunks[first]),)

        monkeypatch.setattr(LocalTasks, "coming", coming)
        return read

    chunks: dict[int, Any] = {}

    def placed(task: Task) -> Iterator[tuple[int, Any]]:
        chunks[task.task_id] = task.chunks
        read.append((task.pass_id, task.task_id))
        return read_placed(task)

    monkeypatch.setattr(task_reading, "read_placed", placed)
    return begin


def test_what_is_foretold_of_the_next_pass_is_read_before_this_one_is_over_and_once(job, foretelling):
    read, last = foretelling(0), RECORDS * TASKS - 1
    for _x, y in job.steps(job.reader(datasets.NAME, RECORDS), passes=2):
        if (0, 1) in read and last in y.tolist() and (1, 1) not in read:
            until("the next pass is read", lambda: (1, 0) in read)
    assert read[:4] == [(0, 0), (0, 1), (1, 0), (1, 1)]


@pytest.mark.invariant("Reading ahead changes no batch.")
@pytest.mark.parametrize("first", range(TASKS))
def test_whatever_is_foretold_the_batches_are_the_same(job, foretelling, first):
    of = {}
    for ahead in (0, 4):
        foretelling(first)
        of[ahead] = [y.tolist() for _x, y in job.steps(job.reader(datasets.NAME, 7, shuffle=50, ahead=ahead), passes=3)]
    assert of[0] == of[4]


def test_nothing_of_the_next_pass_is_decoded_before_this_one_is_over(job, foretelling):
    read, decode = foretelling(0), Decode()
    passes: list[int] = []
    job.on(dist.EndPass, lambda event: passes.append(len(decode.seen)))
    for _batch in job.steps(job.reader(datasets.NAME, 10, decode=decode), passes=2):
        if len(decode.seen) == RECORDS * TASKS:
            until("the next pass is read", lambda: (1, 0) in read)
    assert passes == [RECORDS * TASKS, 2 * RECORDS * TASKS]


def test_leaving_the_loop_stops_the_reading(job):
    for _batch in job.steps(job.reader(datasets.NAME, 10, decode=Decode()), passes=1):
        assert reading()
        break
    assert not reading()


def test_a_task_that_was_handed_back_in_the_middle_is_read_no_further_and_is_not_done(job):
    steps = iter(job.steps(job.reader(datasets.NAME, 10, decode=Decode()), passes=1))
    first = next(steps).tolist()
    job._loop.current.release()
    assert next(steps).tolist() == first
    steps.close()
    assert not reading()


@pytest.mark.invariant(
    "Positions and failures are reported for the batch in training, not for records that were read ahead."
)
def test_the_place_reported_to_the_master_is_that_of_the_current_batch(job, monkeypatch):
    places = []
    steps = iter(job.steps(job.reader(datasets.NAME, 10), passes=1))
    for _ in range(3):
        next(steps)
    monkeypatch.setattr(job._loop._source, "fail", lambda task, why, place=None: places.append(place))
    job._loop.crash(ValueError("this one is too much"))
    assert places == [(20, 30)]


def test_a_record_that_cannot_be_decoded_raises_after_the_batches_before_it(job):
    seen: list[int] = []
    with pytest.raises(ValueError, match="too much") as raised:
        for batch in job.steps(job.reader(datasets.NAME, 10, decode=Decode(bad=55), on_bad_record="raise"), passes=1):
            seen.extend(batch.tolist())
    assert seen == list(range(50))
    assert traceback.extract_tb(raised.value.__traceback__)[-1].name == "__call__"


def test_less_than_nothing_is_not_read_ahead(job):
    with pytest.raises(UsageError, match=pattern(messages.READ_AHEAD_INVALID)):
        job.reader(datasets.NAME, 10, ahead=-1)
