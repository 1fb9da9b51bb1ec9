"""``manage.py work``: the Celery worker of ``manage.py up``.

Celery's own orderly end takes up to five seconds when the broker is a directory. A Celery task is a hint that may be
lost, so this worker only waits for running tasks, and exits.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from celery import signals
from django.core.management.base import BaseCommand, CommandParser

from portal.celery import app
from portal.common.monitoring import heartbeat
from portal.common.monitoring.metrics import Process
from portal.operations import tracing
from portal.operations.serving import serve
from portal.operations.worker import RunningTasks, watch_loop
from portal.system.heartbeats import Reporter

_GRACE_SECONDS = 2.0
_THREADS = 4
_ARGUMENTS = (
    *("--quiet", "worker", "--pool", "threads", "--concurrency", str(_THREADS), "--loglevel", "WARNING"),
    *("--without-gossip", "--without-mingle", "--without-heartbeat"),
)


class Command(BaseCommand):
    help = "Run the Celery worker until SIGTERM."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--operations-port", type=int, help="instead of REGATTA_OPERATIONS_PORT")

    def handle(self, *args: Any, operations_port: int | None, **options: Any) -> None:
        # The installation guide already advises against running the whole portal as root.
        warnings.filterwarnings("ignore", message="You're running the worker with superuser privileges")
        # Celery leaves the loggers as the settings have configured them when this signal has a receiver.
        signals.setup_logging.connect(_keep_loggers)
        running = RunningTasks(_THREADS)
        running.connect()
        watch_loop(app)
        serve(Process.WORKER, (heartbeat.OF_PROCESS.last, running.last), port=operations_port)
        stop_tracing = tracing.start(Process.WORKER)
        reporter = Reporter("worker")
        reporter.start()
        # Later than Celery's own handlers, which it sets while it starts.
        # The signal keeps no reference.
        end_on_sigterm = _EndOnSigterm(running, (reporter.stop, stop_tracing))
        signals.worker_ready.connect(end_on_sigterm)
        app.worker_main(_ARGUMENTS)


def _keep_loggers(loglevel: int | None = None, **_: Any) -> None:
    logging.getLogger("celery").setLevel(logging.WARNING)


class _EndOnSigterm:
    """Ends the process at SIGTERM, once no task runs or after the grace. ``before_exit`` are called then."""

    def __init__(self, running: RunningTasks, before_exit: Sequence[Callable[[], None]]) -> None:
        self._running = running
        self._before_exit = before_exit

    def __call__(self, **_: Any) -> None:
        signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=self._leave).start())

    def _leave(self) -> None:
        self._running.wait_for_all(_GRACE_SECONDS)
        for each in self._before_exit:
            each()
        os._exit(0)
