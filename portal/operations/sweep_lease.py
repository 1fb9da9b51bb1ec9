"""Lease of the sweeps: of several, one makes the passes, and another continues a few seconds after it was killed.

A lost or doubled lease costs time, never correctness: everything that a sweep does may be done twice. So the lease
needs no clock that the machines share. Its holder increments a number in the database; a sweep that sees the same
number for ``LENGTH_SECONDS`` of its own monotonic clock takes the lease by compare-and-set.

The embedded database is that of one machine, whose supervisor starts one sweep: it needs no lease.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from django.db import connection
from django.db.models import F

from portal.common import outages
from portal.common.monitoring import heartbeat
from portal.common.rows import ensure
from portal.models import SweepLease

LENGTH_SECONDS = 5.0
EVERY_SECONDS = 1.0
# A sweep whose loop has not turned for so long gives up the lease, although its process runs.
STUCK_SECONDS = 30.0
# How long an orderly end waits until the lease is free.
END_SECONDS = 1.0
_log = logging.getLogger(__name__)


def identity() -> str:
    """Return the name of this process: machine or pod, and process id."""
    return f"{socket.gethostname()[:253]}/{os.getpid()}"


class Lease:
    """The lease as one sweep sees it. ``look`` renews or takes it; ``is_held`` may be called from any thread."""

    def __init__(self, holder: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._holder, self._clock = holder, clock
        self._renewed: float | None = None
        self._revision = 0
        self._seen: tuple[str, int] | None = None
        self._since = 0.0

    def is_held(self) -> bool:
        """Return whether the lease was renewed within its length."""
        renewed = self._renewed
        return renewed is not None and self._clock() < renewed + LENGTH_SECONDS

    def look(self) -> None:
        """Renew the lease, or take it if it is free or its holder has not renewed it."""
        now = self._clock()
        if self._renewed is not None:
            self._change(self._holder, self._revision, now)
            return
        found = SweepLease.objects.filter(pk=1).values_list("holder", "revision").first()
        if found is None:
            ensure(SweepLease, pk=1)
            found = ("", 0)
        if found != self._seen:
            self._seen, self._since = found, now
        if now >= self._since + LENGTH_SECONDS or is_gone(found[0]):
            self._change(*found, now)

    def resign(self) -> None:
        """Free the lease, so that another sweep continues at once."""
        if self._renewed is not None:
            SweepLease.objects.filter(pk=1, holder=self._holder, revision=self._revision).update(holder="")
            self._renewed = None

    def _change(self, holder: str, revision: int, now: float) -> None:
        """Write the next revision if the lease is still as stated."""
        rows = SweepLease.objects.filter(pk=1, holder=holder, revision=revision)
        took = rows.update(holder=self._holder, revision=F("revision") + 1)
        self._revision = revision + 1
        self._renewed = now if took else None


def is_gone(holder: str) -> bool:
    """Return whether the lease is free, or its holder was a process of this machine that has ended."""
    host, _, pid = holder.rpartition("/")
    if not holder or holder == identity():
        return True
    if host != socket.gethostname()[:253]:
        return False
    with suppress(PermissionError):
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            return True
    return False


class LeaseKeeper:
    """Keeps the lease of this process from a thread of its own, so that a long pass does not lose it."""

    def __init__(self, lease: Lease, loop: heartbeat.Heartbeat = heartbeat.OF_PROCESS) -> None:
        self._lease, self._loop = lease, loop
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)
        self._needed = connection.vendor != "sqlite"

    def start(self) -> None:
        if self._needed:
            self._thread.start()

    def is_held(self) -> bool:
        """Return whether this sweep makes the passes."""
        return not self._needed or self._lease.is_held()

    def stop(self) -> None:
        """Free the lease. Waits at most ``END_SECONDS``."""
        self._stopping.set()
        if self._needed:
            self._thread.join(END_SECONDS)

    def turn(self) -> None:
        """Renew or take the lease; free it if the loop of the sweep hangs."""
        is_stuck = time.monotonic() - self._loop.last() > STUCK_SECONDS
        self._lease.resign() if is_stuck else self._lease.look()

    def _run(self) -> None:
        while not self._stopping.is_set():
            _quietly(self.turn)
            self._stopping.wait(EVERY_SECONDS)
        _quietly(self._lease.resign)


def _quietly(access: Callable[[], object]) -> None:
    """Access the database. A failure costs at most the lease: the next turn tries again."""
    try:
        access()
    except Exception as error:  # noqa: BLE001  whatever a database may raise
        if not outages.is_lost(error):  # which the loop of the sweep reports
            _log.warning("The lease of the sweeps could not be renewed.", exc_info=True)
    finally:
        connection.close()
