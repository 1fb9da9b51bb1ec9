"""The batches of a task, and those of the next tasks ahead."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from runtime.data.catalogue import Unreadable
from runtime.errors import Lost, RegattaError
from runtime.master.messages import Task
from runtime.trainer.tasks import task_reading
from runtime.trainer.tasks.reader import Reader
from runtime.trainer.tasks.task_reading import InvalidRecord, MissingFile, TaskReading
from tests.waiting import until

RECORDS = 6


class Chunk(NamedTuple):
    records: int = RECORDS
    format: str = ""


def task(number: int, epoch: int = 1) -> Task:
    return Task(0, number, epoch, (Chunk(),))  # type: ignore[arg-type]


class Source:
    """Predicts the next tasks."""

    def __init__(self, *numbers: int) -> None:
        self.numbers = numbers

    def coming(self) -> tuple[Task, ...]:
        return tuple(task(number, epoch=0) for number in self.numbers)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The tasks that were read, in order."""
    numbers: list[int] = []

    def placed(task: Task) -> Iterator[tuple[int, float]]:
        numbers.append(task.task_id)
        return iter([(at, float(10 * task.task_id + at)) for at in range(RECORDS)])

    monkeypatch.setattr(task_reading, "read_placed", placed)
    return numbers


@pytest.fixture
def reading() -> Iterator[TaskReading]:
    running = TaskReading(Reader("", 2, ahead=2), seed=0)
    yield running
    running.close()


def batches(reading: TaskReading, number: int) -> list[Any]:
    with reading.batches(task(number)) as found:
        return [batch.tolist() for _place, batch in found]


def test_a_task_that_was_predicted_is_read_once(reading, read):
    with reading.batches(task(0)) as found:
        reading.read_next(Source(1))
        list(found)
        until("the next task is read", lambda: read == [0, 1])
    assert batches(reading, 1) == [[10.0, 11.0], [12.0, 13.0], [14.0, 15.0]]
    assert read == [0, 1]


def test_a_task_that_was_not_predicted_is_read_when_it_is_begun(reading, read):
    reading.read_next(Source(1))
    assert batches(reading, 2) == [[20.0, 21.0], [22.0, 23.0], [24.0, 25.0]]
    assert batches(reading, 1) == [[10.0, 11.0], [12.0, 13.0], [14.0, 15.0]]


def test_no_more_tasks_are_read_than_batches_ahead(reading, read):
    reading.read_next(Source(1, 2, 3, 4))
    reading.read_next(Source(1, 2, 3, 4))
    assert batches(reading, 2)[0] == [20.0, 21.0]
    assert set(read) <= {1, 2}


def test_the_places_of_a_batch_are_those_of_its_records(reading, read):
    with reading.batches(task(0)) as found:
        assert [place for place, _batch in found] == [(0, 2), (2, 4), (4, 6)]


def test_a_task_that_is_stopped_has_no_further_batches(reading, read):
    with reading.batches(task(0)) as found:
        next(found)
        reading.stop()
        assert list(found) == []


@pytest.mark.parametrize(
    ("raised", "expected"),
    [(Unreadable("gone"), MissingFile), (RegattaError("damaged"), InvalidRecord), (Lost("for now"), Lost)],
)
def test_an_error_of_the_data_has_the_type_of_its_consequence(reading, monkeypatch, raised, expected):
    def placed(_task: Task) -> Iterator[tuple[int, float]]:
        raise raised

    monkeypatch.setattr(task_reading, "read_placed", placed)
    with pytest.raises(expected, match=str(raised)):
        batches(reading, 0)
