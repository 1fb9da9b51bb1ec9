"""The whole of the page *System*: all observations, judged. Cached for seconds in each web process.

Checks of other machines run in parallel threads, each with a deadline. A check that is still running when the next page
is requested is not started again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.core.cache import cache

from portal.common.clock import now as wall_clock
from portal.system import credentials, records, redaction, rules, servers
from portal.system import messages as texts
from portal.system import observations as seen
from portal.system.rules import Entry

# The time that all checks of other machines have together.
DEADLINE_SECONDS = 4.0
FRESH_SECONDS = 5
# The badge of the menu is on many pages: it uses what is known, and counts the database's part again after this time.
BADGE_SECONDS = 30
# Results of other machines that the badge still uses.
KNOWN_FOR = timedelta(minutes=5)
_OVERVIEW, _BADGE, _REMOTE = "system.overview", "system.badge", "system.remote"
_SERVERS = frozenset({"redis", "etcd", "kubernetes", "storage"})
Check = Callable[[], seen.Observation]


@dataclass(frozen=True)
class Overview:
    """Entries of the page, and when they were observed."""

    at: datetime
    entries: tuple[Entry, ...]

    @property
    def attention(self) -> int:
        return rules.attention(self.entries)

    def of(self, section: str) -> list[Entry]:
        return [entry for entry in self.entries if entry.section == section]


def overview() -> Overview:
    """Return the present overview, at most ``FRESH_SECONDS`` old."""
    known: Overview | None = cache.get(_OVERVIEW)
    if known is None:
        known = _observe()
        cache.set(_OVERVIEW, known, FRESH_SECONDS)
        cache.set(_BADGE, known.attention, BADGE_SECONDS)
    return known


def forget() -> None:
    """Observe again at the next request: something was changed."""
    cache.delete_many([_OVERVIEW, _BADGE])


def badge() -> int:
    """Return the number of entries that need attention. Waits for no other machine."""
    known: int | None = cache.get(_BADGE)
    if known is None:
        remote: list[seen.Observation] = cache.get(_REMOTE) or []
        now = wall_clock()
        known = rules.attention(rules.judge([*_local(now), *remote], now))
        cache.set(_BADGE, known, BADGE_SECONDS)
    return known


def _observe() -> Overview:
    now = wall_clock()
    pending = {name: _start(name, check) for name, check in servers.REMOTE.items()}
    local = _local(now)
    remote = _results(pending, DEADLINE_SECONDS)
    cache.set(_REMOTE, remote, int(KNOWN_FOR.total_seconds()))
    return Overview(now, tuple(rules.judge([*local, *remote], now)))


def _local(now: datetime) -> list[seen.Observation]:
    redact = redaction.of_this_process()
    return [
        records.processes(),
        *records.failing_tasks(redact),
        servers.database(),
        *records.restorations(),
        *servers.disks(),
        records.queue(now),
        records.streams(now),
        records.tokens(now),
        *credentials.credentials(),
        records.mail(now),
    ]


# --- Checks in threads -----------------------------------------------------------------------------------------------
_running: dict[str, Future[seen.Observation]] = {}
_guard = threading.Lock()


def _start(name: str, check: Check) -> Future[seen.Observation]:
    """Start a check on a thread of its own, unless an earlier one is still running. The thread is a daemon: a check
    that hangs must not delay the end of the process."""
    with _guard:
        former = _running.get(name)
        if former is not None and not former.done():
            return former
        future: Future[seen.Observation] = Future()
        _running[name] = future
    threading.Thread(target=_run, args=(name, check, future), name=f"check of {name}", daemon=True).start()
    return future


def _run(name: str, check: Check, future: Future[seen.Observation]) -> None:
    try:
        future.set_result(check())
    except Exception as error:  # noqa: BLE001  whatever a client raises; its text may hold an address
        future.set_result(_failed(name, type(error).__name__))


def _failed(name: str, error: str) -> seen.Observation:
    return seen.Unreachable(name, error) if name in _SERVERS else seen.Certificate("", None, error)


def _results(pending: Mapping[str, Future[seen.Observation]], seconds: float) -> list[seen.Observation]:
    """Return the results of all checks; those that have none after ``seconds`` count as failed."""
    wait_for(pending.values(), timeout=seconds)
    late = texts.NOT_FINISHED(seconds=f"{seconds:g}")
    return [future.result() if future.done() else _failed(name, late) for name, future in pending.items()]
