"""Heartbeat and metrics of the Celery worker, which runs its tasks on threads of one process.

The worker hangs when its loop does not turn, or when every thread is busy with a task that does not end. The loop beats
by a timer of the event loop (Redis) or at each read of the broker's directory (``portal.celery_broker``). Without a
connection to the broker the loop waits, and the heartbeat is paused: a restart would not bring the broker back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from celery import Celery, bootsteps, signals
from celery.worker.consumer import Connection

from portal.common.monitoring import heartbeat, metrics

_BEAT_SECONDS = 1.0


class LoopHeartbeat(bootsteps.StartStopStep):  # type: ignore[misc,unused-ignore]  # Celery has no types
    """A step of the consumer: beats while the worker is connected to its broker."""

    requires = (Connection,)

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        self._timer: Any = None

    def start(self, consumer: Any) -> None:
        heartbeat.OF_PROCESS.beat()
        if consumer.hub is not None:
            self._timer = consumer.timer.call_repeatedly(_BEAT_SECONDS, heartbeat.OF_PROCESS.beat)

    def stop(self, consumer: Any) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        heartbeat.OF_PROCESS.pause()

    shutdown = stop


class RunningTasks:
    """The running tasks, from Celery's signals. Counts them and measures their durations."""

    def __init__(self, threads: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._threads, self._clock = threads, clock
        self._changed = threading.Condition()
        self._began: dict[str, float] = {}

    def connect(self) -> None:
        """Follow the tasks of this process."""
        signals.task_prerun.connect(self.begin)
        signals.task_postrun.connect(self.end)

    def begin(self, task_id: str = "", **_: Any) -> None:
        with self._changed:
            self._began[task_id] = self._clock()
        metrics.TASKS_RUNNING.inc()

    def end(self, task_id: str = "", task: Any = None, state: str | None = None, **_: Any) -> None:
        with self._changed:
            began = self._began.pop(task_id, None)
            self._changed.notify_all()
        if began is None:
            return
        name, result = getattr(task, "name", metrics.OTHER), "success" if state == "SUCCESS" else "failure"
        metrics.TASKS_RUNNING.dec()
        metrics.TASKS.labels(name, result).inc()
        metrics.TASK_SECONDS.labels(name).observe(self._clock() - began)

    def wait_for_all(self, seconds: float) -> None:
        """Wait until no task runs, at most so long."""
        with self._changed:
            self._changed.wait_for(lambda: not self._began, timeout=seconds)

    def last(self) -> float:
        """Return when a thread last took a task while all are busy, else the present time."""
        with self._changed:
            return self._clock() if len(self._began) < self._threads else max(self._began.values())


def watch_loop(app: Celery) -> None:
    """Have the worker's loop beat."""
    heartbeat.OF_PROCESS.pause()
    app.steps["consumer"].add(LoopHeartbeat)
