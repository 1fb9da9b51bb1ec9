"""Runs the periodic tasks of the sweep, each guarded: one that raises neither stops nor delays the others.

A task that fails is logged with its name, tried again after a pause that doubles with every failure in a row, and noted
in ``FailedTask`` for the admins' page until it has gone well.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from jobs.models import FailedTask

_log = logging.getLogger(__name__)

LONGEST_PAUSE = timedelta(minutes=5)
_ERROR_CHARACTERS = 500


class Task(NamedTuple):
    """What is done once a sweep (or less often, as ``run`` decides itself)."""

    name: str
    run: Callable[[datetime], object]


class Periodic:
    """The tasks of one process, in their order."""

    def __init__(self, tasks: Sequence[Task], *, every: float) -> None:
        self._tasks, self._every = tasks, timedelta(seconds=every)
        self._failures: dict[str, int] = {}
        self._next: dict[str, datetime] = {}
        # What an earlier process has noted may be over.
        self._clean: set[str] = set()

    def run(self, now: datetime) -> None:
        """Run every task that is not in a pause after a failure."""
        for task in self._tasks:
            if now >= self._next.get(task.name, now):
                self._run(task, now)

    def _run(self, task: Task, now: datetime) -> None:
        try:
            task.run(now)
        except Exception as error:  # noqa: BLE001  whatever it is, the others have nothing to do with it
            self._failed(task.name, error, now)
        else:
            self._succeeded(task.name)

    def _failed(self, name: str, error: Exception, now: datetime) -> None:
        failures = self._failures[name] = self._failures.get(name, 0) + 1
        pause = min(self._every * 2.0 ** min(failures, 16), max(LONGEST_PAUSE, self._every))
        self._next[name] = now + pause
        self._clean.discard(name)
        _log.exception("The periodic task %s failed (%d in a row); the next try is in %s.", name, failures, pause)
        text = (str(error) or type(error).__name__)[:_ERROR_CHARACTERS]
        fields = {"last": now, "failures": failures, "error": text}
        _quietly(
            lambda: FailedTask.objects.update_or_create(
                pk=name, defaults=fields, create_defaults={**fields, "since": now}
            )
        )

    def _succeeded(self, name: str) -> None:
        self._failures.pop(name, None)
        self._next.pop(name, None)
        if name not in self._clean and _quietly(lambda: FailedTask.objects.filter(pk=name).delete()):
            self._clean.add(name)


def _quietly(note: Callable[[], object]) -> bool:
    """Whether the note could be made. It is the database that failed, where it cannot."""
    try:
        note()
    except Exception:  # noqa: BLE001  the log has it already
        _log.warning("What became of a periodic task could not be noted.", exc_info=True)
        return False
    return True
