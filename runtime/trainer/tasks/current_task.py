"""The task that a trainer works on, and the report that ends it early."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from runtime.errors import RegattaError
from runtime.master.messages import Unread
from runtime.trainer.tasks.task_client import Place, Task, TaskSource


class CurrentTask:
    """The current task of a loop. At most one report takes it, from any thread.

    ``place`` are the records of the batch in training. ``stop_reading`` is called when a report has taken the task.
    """

    def __init__(self, source: TaskSource, stop_reading: Callable[[], None]) -> None:
        self._source = source
        self._stop_reading = stop_reading
        self._lock = threading.Lock()
        self.task: Task | None = None
        self.place: Place | None = None

    def release(self) -> None:
        """Release the task, so that another trainer takes it over at once."""
        if (task := self._take()) is not None:
            with suppress(RegattaError):
                self._source.release(task)

    def fail(self, why: str, place: Place | None = None) -> None:
        """Report that the task cannot be done."""
        if (task := self._take()) is not None:
            with suppress(RegattaError):
                self._source.fail(task, why, place)

    def fail_here(self, why: str) -> None:
        """Report that the batch in training cannot be done, so that others search there."""
        self.fail(why, self.place)

    def cannot_read(self, why: str, unread: Unread) -> None:
        """Report unreadable data: no fault of the script or of a record. Raises what the source raises."""
        if (task := self._take()) is not None:
            self._source.cannot_read(task, why, unread)

    def _take(self) -> Task | None:
        with self._lock:
            task, self.task = self.task, None
        self._stop_reading()
        return task
