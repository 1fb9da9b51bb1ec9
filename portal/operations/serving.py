"""Start of the operations port in a process of the portal."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from functools import partial

from django.conf import settings
from django.core.management.base import CommandError

from portal.common.monitoring import heartbeat, metrics
from portal.common.monitoring.database_errors import count_failures
from portal.common.monitoring.metrics import Process
from portal.common.postgresql import pool
from portal.common.version import VERSION
from portal.operations.server import Check, OperationsServer
from portal.preflight import CannotStart

# The offsets of the ports of processes that run on one machine: ``manage.py up``.
OFFSETS = {Process.WEB: 0, Process.WORKER: 1, Process.SWEEP: 2}


def serve(process: Process, lasts: Sequence[Callable[[], float]], *, port: int | None = None) -> None:
    """Serve metrics and health on ``port``, by default ``REGATTA_OPERATIONS_PORT``; 0: not at all.

    ``lasts`` return the times of last activity by ``time.monotonic``; the oldest decides the health. Raises
    CommandError.
    """
    count_failures()
    port = settings.OPERATIONS_PORT if port is None else port
    if not port:
        return
    check = heartbeat.oldest(lasts)
    _prepare(process, check)
    try:
        OperationsServer(settings.HOST, port, metrics.registry_of(process), check).start()
    except CannotStart as reason:
        raise CommandError(str(reason)) from None


def always_alive() -> float:
    """Return the present time: the process has probes of its own."""
    return time.monotonic()


def _prepare(process: Process, check: Check) -> None:
    """Set the metrics that are computed at each scrape."""
    metrics.INFO.labels(VERSION, process).set(1)
    metrics.computed(metrics.HEARTBEAT_AGE, lambda: check().age)
    metrics.computed(metrics.DATABASE_CONNECTIONS.labels("open"), lambda: pool.counted(lambda one: one.open))
    metrics.computed(metrics.DATABASE_CONNECTIONS.labels("used"), lambda: pool.counted(lambda one: one.taken))
    metrics.computed(metrics.DATA_FREE_BYTES, partial(_disk, "free"))
    metrics.computed(metrics.DATA_SIZE_BYTES, partial(_disk, "total"))


def _disk(column: str) -> float:
    try:
        return float(getattr(shutil.disk_usage(settings.DATA_DIR), column))
    except OSError:
        return float("nan")
