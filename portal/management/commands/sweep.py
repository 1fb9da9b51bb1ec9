"""``manage.py sweep``: repairs, periodically, what a lost hint or a crash has left."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser
from django.db import close_old_connections, connection

from portal.common import outages
from portal.common.clock import now as wall_clock
from portal.common.monitoring import heartbeat, metrics
from portal.common.monitoring.metrics import Process
from portal.operations import tracing
from portal.operations.serving import serve
from portal.operations.sweep_lease import Lease, LeaseKeeper, identity
from portal.system.heartbeats import HeartbeatPruning, Reporter

if TYPE_CHECKING:
    from jobs.maintenance.periodic import Task

_log = logging.getLogger(__name__)
LONGEST_PAUSE = 30.0
# Between two looks for a lost database: jobs go on soon after it is back.
LOST_PAUSE = 2.0


class Command(BaseCommand):
    help = (
        "Run the periodic tasks every REGATTA_SWEEP_SECONDS until SIGTERM: above all, reconcile all active jobs. "
        "Of several sweeps on PostgreSQL, one runs them and the others wait for its end."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--operations-port", type=int, help="instead of REGATTA_OPERATIONS_PORT")

    def handle(self, *args: Any, operations_port: int | None, **options: Any) -> None:
        from jobs.maintenance.periodic import Periodic

        stop = threading.Event()
        periodic = Periodic(_tasks(), every=settings.SWEEP_SECONDS)
        passes = Passes()
        metrics.computed(metrics.SWEEP_AGE, passes.age)
        serve(Process.SWEEP, (heartbeat.OF_PROCESS.last,), port=operations_port)
        stop_tracing = tracing.start(Process.SWEEP)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())

        reporter = Reporter("sweep")
        reporter.start()
        lease = LeaseKeeper(Lease(identity()))
        lease.start()

        def sweep_once(now: datetime) -> None:
            leads = lease.is_held()
            with passes.measured() if leads else nullcontext():
                close_old_connections()
                # Without a database no task begins: each would fail in its own way, and log that.
                connection.ensure_connection()
                periodic.run(now, leads=lease.is_held)
            if leads:
                reporter.passed(passes.seconds)
            heartbeat.OF_PROCESS.beat()

        try:
            repeat(sweep_once, every=settings.SWEEP_SECONDS, wait=stop.wait)
        finally:
            lease.stop()
            reporter.stop()
            stop_tracing()


def _tasks() -> tuple[Task, ...]:
    """Return the periodic tasks in the order of a pass."""
    from datasets.garbage_collection import Maintenance
    from jobs.control.replica_http import get_json
    from jobs.elastic.controller.controller import Controller
    from jobs.launch.cluster_namespaces import NamespaceUpdates
    from jobs.launch.coordination_accounts import AccountCleanup
    from jobs.lifecycle.steadiness import Watch
    from jobs.log_follower.pool import Following
    from jobs.maintenance.garbage_collection import Pruning
    from jobs.maintenance.periodic import Task
    from jobs.maintenance.retention import Retaining
    from jobs.maintenance.statistics import Statistics
    from jobs.maintenance.stream_compaction import seal_due
    from jobs.notebooks.idle import NotebookWatch
    from jobs.notebooks.sessions import SessionCleanup
    from jobs.reconcile.admission import Explanations
    from jobs.reconcile.pausing import PauseWatch
    from jobs.reconcile.progress_watch import ProgressWatch
    from jobs.reconcile.sweep import sweep
    from jobs.selectors.jobs import versions_in_use
    from jobs.services import inspection
    from jobs.storage_usage import Accounting
    from rbac.emails.outbox import Outbox
    from rbac.sign_in.password_guessing import SignInAttempts

    # The numbers of trainers first: waiting jobs then find the capacity that was freed for them.
    return (
        Task("elastic", Controller().when_due),
        Task("jobs", partial(sweep, watch=Watch(), explanations=Explanations())),
        Task("progress", ProgressWatch(inspection.stacks_of).when_due),
        Task("notebooks", NotebookWatch(get_json).when_due),
        Task("pauses", PauseWatch().when_due),
        Task("sealing", seal_due),
        Task("following", Following().when_due),
        Task("pruning", Pruning().when_due),
        Task("retention", Retaining().when_due),
        Task("coordination", AccountCleanup().when_due),
        Task("storage", Accounting().when_due),
        Task("datasets", Maintenance(versions_in_use).when_due),
        Task("namespaces", NamespaceUpdates().when_due),
        Task("notebook sessions", SessionCleanup().when_due),
        Task("e-mail", Outbox().when_due),
        Task("sign-in attempts", SignInAttempts().when_due),
        Task("statistics", Statistics().when_due, everywhere=True),
        Task("heartbeats", HeartbeatPruning().when_due),
    )


class Passes:
    """Measures the passes of the sweep. The heartbeat beats at each pass, task and job, so a long pass is no hang.

    Of several sweeps, those without the lease make none, and their age grows: the least age is that of the platform.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ended = clock()
        # Duration of the last pass.
        self.seconds = 0.0

    def age(self) -> float:
        """Return the seconds since the last pass ended, whether it failed or not."""
        return self._clock() - self._ended

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure the block as a pass."""
        began = self._clock()
        try:
            yield
        finally:
            self._ended = self._clock()
            self.seconds = self._ended - began
            metrics.SWEEP_SECONDS.observe(self.seconds)
            heartbeat.OF_PROCESS.beat()


def repeat(sweep: Callable[[datetime], object], *, every: float, wait: Callable[[float], bool]) -> None:
    """Sweep until ``wait(seconds)`` returns true. After failures in a row the next sweep comes later each time.

    A lost database is logged when it is lost and when it is back, and looked for every ``LOST_PAUSE``.
    """
    failures, is_lost = 0, False
    while not wait(max(every, LOST_PAUSE) if is_lost else pause_after(failures, every)):
        try:
            sweep(wall_clock())
        except Exception as error:  # noqa: BLE001  whatever it is, the next sweep may succeed
            if outages.is_lost(error):
                _note_loss(error, is_known=is_lost)
                is_lost = True
                continue
            failures += 1
            metrics.SWEEP_ERRORS.labels("pass").inc()
            _log.exception(
                "The sweep failed (%d in a row); the next one is in %g s.", failures, pause_after(failures, every)
            )
        else:
            failures = 0
        if is_lost:
            _log.warning("The database answers again; the sweep continues.")
            is_lost = False


def _note_loss(error: Exception, *, is_known: bool) -> None:
    outages.close_lost()
    if not is_known:
        _log.warning("The database is lost; the sweep waits for it: %s", " ".join(str(error).split()))


def pause_after(failures: int, every: float) -> float:
    """Return the seconds until the next sweep: doubled by every failure in a row, at most ``LONGEST_PAUSE``."""
    return min(every * 2.0 ** min(failures, 16), max(LONGEST_PAUSE, every))
