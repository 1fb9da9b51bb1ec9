"""The batches of tasks, read in the background where that is worthwhile, and those of the next tasks ahead."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any

from runtime.data.catalogue import Unreadable, read_placed
from runtime.errors import Lost, RegattaError
from runtime.trainer.tasks.read_ahead import MOST_BYTES, ReadAhead, Readers
from runtime.trainer.tasks.reader import Placed, Reader, Wanted
from runtime.trainer.tasks.task_client import Place, Task, TaskSource


class MissingFile(RegattaError):
    """A file that the task needs is gone or changed."""


class InvalidRecord(RegattaError):
    """The files are unchanged, but a record of the task is invalid."""


_Reading = ReadAhead[tuple[Place, Any]]


class TaskReading:
    """Reads one task at a time, and up to ``reader.ahead`` of the next ones while it is trained on.

    A task that was read ahead is used only if it is the one that is begun; otherwise it is read again. So the batches
    of a task depend on its dispatch and ``seed`` alone. ``stop`` may be called by any thread.
    """

    def __init__(self, reader: Reader, seed: int) -> None:
        self._reader = reader
        self._seed = seed
        self._readers = Readers(reader.ahead, MOST_BYTES)
        self._current: _Reading | None = None  # the background reading of the current task
        self._next: deque[tuple[Task, _Reading]] = deque()

    @contextmanager
    def batches(self, task: Task) -> Iterator[Iterator[tuple[Place, Any]]]:
        """The batches of a task with the places of their records, until ``stop`` or the end of the block.

        They raise MissingFile, InvalidRecord, BadRecord, Lost.
        """
        ahead = self._take_next(task)
        if ahead is None and not self._reader.reads_ahead(_count(task)):
            yield self._read(task)
            return
        self._current = ahead = ahead or ReadAhead(partial(self._read, task), self._readers)
        ahead.begin()
        try:
            yield ahead
        finally:
            ahead.stop()
            self._current = None

    def read_next(self, source: TaskSource) -> None:
        """Start to read the tasks that ``source`` will give next, at most as many as there are batches ahead."""
        if not self._reader.reads_on or len(self._next) >= self._reader.ahead:
            return
        for task in islice(source.coming(), len(self._next), self._reader.ahead):
            before = self._reader.batch if self._reader.decodes(task.chunks[0].format) else None
            self._next.append((task, ReadAhead(partial(self._read, task), self._readers, before)))

    def stop(self) -> None:
        """Drop the batches of the current task that were read and not trained on."""
        if (current := self._current) is not None:
            current.stop()

    def close(self) -> None:
        """Drop the next tasks, and end the thread."""
        for _task, ahead in self._next:
            ahead.stop()
        self._next.clear()
        self._readers.close()

    def _take_next(self, task: Task) -> _Reading | None:
        """Return the reading of a task that started before it was begun; readings of earlier tasks are stopped."""
        while self._next:
            other, ahead = self._next.popleft()
            if _contents(other) == _contents(task):
                return ahead
            ahead.stop()
        return None

    def _read(self, task: Task, wanted: Wanted = iter) -> Generator[tuple[Place, Any]]:
        seed = (self._seed, task.pass_id, task.task_id)
        return self._reader.batches(_records(task), seed, task.chunks[0].format, wanted)


def _records(task: Task) -> Iterator[Placed]:
    try:
        yield from read_placed(task)
    except Unreadable as error:
        raise MissingFile(str(error)) from error
    except Lost:
        raise
    except RegattaError as error:
        raise InvalidRecord(str(error)) from error


def _count(task: Task) -> int:
    """The number of records of a task."""
    if task.ranges is None:
        return sum(chunk.records for chunk in task.chunks)
    return sum(end - first for first, end in task.ranges)


def _contents(task: Task) -> tuple[object, ...]:
    """The properties that determine the batches of a task."""
    return task.pass_id, task.task_id, task.chunks, task.ranges
