"""Periodic tasks of the sweep. A task that raises an error neither stops nor delays the others.

A failure is logged with the task's name and stored in ``FailedTask`` for the admins' page until the task succeeds.
The task is tried again after a pause that doubles with every failure in a row. A lost database is no failure of a task:
it ends the run, and the caller repeats that.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from jobs.models import FailedTask
from portal.common.monitoring import heartbeat, log_context, metrics
from portal.common.outages import is_lost

_log = logging.getLogger(__name__)

LONGEST_PAUSE = timedelta(minutes=5)
_ERROR_CHARACTERS = 500


class Task(NamedTuple):
    """A task of every pass. ``run`` may decide to work less often. ``everywhere``: it concerns this process, so that
    each of several sweeps runs it."""

    name: str
    run: Callable[[datetime], object]
    everywhere: bool = False


class Periodic:
    """The periodic tasks of one process, run in order."""

    def __init__(self, tasks: Sequence[Task], *, every: float) -> None:
        self._tasks, self._every = tasks, timedelta(seconds=every)
        self._failures: dict[str, int] = {}
        self._next: dict[str, datetime] = {}
        # Tasks without a row in ``FailedTask``. At the start none is known: an earlier process may have stored one.
        self._clean: set[str] = set()

    def run(self, now: datetime, *, leads: Callable[[], bool] = lambda: True) -> None:
        """Run every task that is not in its pause after a failure. Raises DatabaseError when the database is lost.

        ``leads`` returns whether this sweep makes the passes; otherwise only the tasks ``everywhere`` run.
        """
        for task in self._tasks:
            if now >= self._next.get(task.name, now) and (task.everywhere or leads()):
                self._run(task, now)

    def _run(self, task: Task, now: datetime) -> None:
        began = time.monotonic()
        try:
            with log_context.use(task=task.name):
                task.run(now)
        except Exception as error:
            if is_lost(error):
                raise
            self._failed(task.name, error, now)
        else:
            self._succeeded(task.name)
        finally:
            metrics.SWEEP_TASK_SECONDS.labels(task.name).inc(time.monotonic() - began)
            heartbeat.OF_PROCESS.beat()

    def _failed(self, name: str, error: Exception, now: datetime) -> None:
        failures = self._failures[name] = self._failures.get(name, 0) + 1
        pause = min(self._every * 2.0 ** min(failures, 16), max(LONGEST_PAUSE, self._every))
        self._next[name] = now + pause
        self._clean.discard(name)
        metrics.SWEEP_ERRORS.labels(name).inc()
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
    """Run ``note`` and return whether it succeeded. Raises DatabaseError when the database is lost."""
    try:
        note()
    except Exception as error:
        if is_lost(error):
            raise
        _log.warning("What became of a periodic task could not be noted.", exc_info=True)
        return False
    return True
