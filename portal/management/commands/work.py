"""``manage.py work``: the Celery worker of ``manage.py up``.

Celery's own orderly end takes up to five seconds when the broker is a directory. A Celery task is a hint that may be
lost, so this worker only waits for running tasks, and exits.
"""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Callable
from typing import Any

from celery import signals
from django.core.management.base import BaseCommand

from portal.celery import app
from portal.system.heartbeats import Reporter

_GRACE_SECONDS = 2.0
_ARGUMENTS = (
    *("--quiet", "worker", "--pool", "threads", "--concurrency", "4", "--loglevel", "WARNING"),
    *("--without-gossip", "--without-mingle", "--without-heartbeat"),
)


class Command(BaseCommand):
    help = "Run the Celery worker until SIGTERM."
    requires_system_checks = ()

    def handle(self, *args: Any, **options: Any) -> None:
        # The installation guide already advises against running the whole portal as root.
        warnings.filterwarnings("ignore", message="You're running the worker with superuser privileges")
        reporter = Reporter("worker")
        reporter.start()
        in_progress = _InProgress(reporter.stop)
        signals.task_prerun.connect(in_progress.begin)
        signals.task_postrun.connect(in_progress.end)
        # Later than Celery's own handlers, which it sets while it starts.
        signals.worker_ready.connect(in_progress.end_on_sigterm)
        app.worker_main(_ARGUMENTS)


class _InProgress:
    """Counts the running tasks. ``before_exit`` is called when they have ended."""

    def __init__(self, before_exit: Callable[[], None]) -> None:
        self._before_exit = before_exit
        self._changed = threading.Condition()
        self._running = 0

    def begin(self, **_: Any) -> None:
        with self._changed:
            self._running += 1

    def end(self, **_: Any) -> None:
        with self._changed:
            self._running -= 1
            self._changed.notify_all()

    def end_on_sigterm(self, **_: Any) -> None:
        signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=self._leave).start())

    def _leave(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._running == 0, timeout=_GRACE_SECONDS)
        self._before_exit()
        os._exit(0)
