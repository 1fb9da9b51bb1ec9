"""Pool of log followers, run by the sweep: each round starts a thread for every replica that needs a follower.

Any number of sweeps may run at once. Only one of them can store a given part of a log; the others are refused and
pause.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from uuid import UUID

from django.conf import settings
from django.db import close_old_connections

from jobs.backends import factory as backend_factory
from jobs.backends.base import BackendUnavailable, FollowedBackend
from jobs.frameworks.definitions import COMMAND
from jobs.lifecycle.states import JobState
from jobs.log_follower.follower import Follower, Wanted
from jobs.log_follower.ingest import Overtaken, followed
from jobs.models import Attempt, Job, Replica
from jobs.selectors import attempts
from jobs.services.notifications import notify
from portal.common.outages import log_failure

_log = logging.getLogger(__name__)

MOST = 200  # connections of one sweep; further replicas are followed when another has ended
AFTER_ANOTHER = 20.0  # seconds until the next try after another follower was ahead
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0  # seconds after a failure; doubled with every failure in a row

Key = tuple[UUID, str]


@dataclass
class _Turn:
    """State of the follower of one replica."""

    follower: Follower | None = None
    running: bool = False
    not_before: float = 0.0
    pause: float = _FIRST_PAUSE


def in_a_thread(work: Callable[[], None]) -> None:
    threading.Thread(target=work, daemon=True, name="following").start()


class Following:
    """Starts a follower for every replica that needs one.

    ``start`` runs work without waiting for it. ``let_go`` releases the database connection that the work has used.
    """

    def __init__(
        self,
        start: Callable[[Callable[[], None]], None] = in_a_thread,
        clock: Callable[[], float] = time.monotonic,
        let_go: Callable[[], None] = close_old_connections,
    ) -> None:
        self._start, self._clock, self._let_go = start, clock, let_go
        self._turns: dict[Key, _Turn] = {}

    def when_due(self, now: datetime) -> None:
        backend = backend_factory.current()
        if not isinstance(backend, FollowedBackend):
            return
        wanted = {(attempt.pk, each.name): (attempt, each) for attempt, each in _wanted()}
        self._turns = {key: turn for key, turn in self._turns.items() if turn.running or key in wanted}
        for key, (attempt, each) in wanted.items():
            turn = self._turns.setdefault(key, _Turn())
            busy = sum(one.running for one in self._turns.values())
            if not turn.running and self._clock() >= turn.not_before and busy < MOST:
                self._begin(backend, turn, attempt, each)

    def _begin(self, backend: FollowedBackend, turn: _Turn, attempt: Attempt, wanted: Wanted) -> None:
        """Start following a replica. If no thread can be started now, try again later."""
        turn.running = True
        try:
            self._start(partial(self._work, backend, turn, attempt, wanted))
        except RuntimeError as shortage:
            turn.running = False
            _log.warning("What %s of job %s prints cannot be read now: %s", wanted.name, attempt.job_id, shortage)
            self._wait(turn)

    def _work(self, backend: FollowedBackend, turn: _Turn, attempt: Attempt, wanted: Wanted) -> None:
        """Follow until the connection ends, and set when to continue."""
        try:
            turn.follower = turn.follower or Follower(backend, followed(attempt, wanted.name), self._let_go)
            if turn.follower.follow(wanted):
                notify(attempt.job)
            turn.pause, turn.not_before = _FIRST_PAUSE, 0.0
        except Overtaken:
            turn.follower, turn.not_before = None, self._clock() + AFTER_ANOTHER
        except BackendUnavailable as problem:
            _log.warning("What %s of job %s prints cannot be read now: %s", wanted.name, attempt.job_id, problem)
            self._wait(turn)
        except Exception as error:  # noqa: BLE001  any error concerns this replica alone
            what = "What %s of job %s prints could not be taken in."
            log_failure(_log, error, what, wanted.name, attempt.job_id)
            turn.follower = None
            self._wait(turn)
        finally:
            self._let_go()
            turn.running = False

    def _wait(self, turn: _Turn) -> None:
        turn.not_before = self._clock() + turn.pause
        turn.pause = min(_LONGEST_PAUSE, 2 * turn.pause)


def _wanted() -> Iterator[tuple[Attempt, Wanted]]:
    """Yield the replicas without an agent whose log is not complete."""
    jobs = Job.objects.filter(state__in=attempts.OBSERVED, spec__framework=COMMAND).select_related("namespace")
    for job in (each for each in jobs if each.spec.get("image")):
        attempt = attempts.present_attempt(job)
        if attempt is None:
            continue
        attempt.job = job
        stopping, ref = job.state == JobState.STOPPING, attempts.ref_of(job, attempt)
        for name in Replica.objects.filter(attempt=attempt, flushed=False).values_list("name", flat=True):
            yield attempt, Wanted(ref, name, settings.LOG_CAP_BYTES, stopping)
