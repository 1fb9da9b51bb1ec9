"""Follower of the log of one replica without an agent, from the last stored place to the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jobs.backends.base import AttemptRef, BackendUnavailable, Container, FollowedBackend
from jobs.log_follower import ingest
from jobs.log_follower.cursor import Line, Place, Reading
from jobs.log_follower.ingest import Followed
from jobs.messages import cluster as messages

# Failed readings of an ended container's log, after which the rest is given up.
TRIES = 6
UNREAD = messages.LOG_END_UNREADABLE
GONE = messages.LOG_END_MISSING()


@dataclass(frozen=True)
class Wanted:
    """A replica to follow. ``cap``: bytes of its output that are stored. ``stopping``: it gets no pod any more."""

    ref: AttemptRef
    name: str
    cap: int
    stopping: bool = False


class Follower:
    """Follower of one replica. ``follow`` may be called repeatedly; the object keeps the result of the last reading.

    ``let_go`` releases the database connection, which would be held idle while a program prints nothing.
    """

    def __init__(self, backend: FollowedBackend, log: Followed, let_go: Callable[[], None]) -> None:
        self._backend, self._log, self._let_go = backend, log, let_go
        self._failures = 0
        self._whole = False  # the last reading reached the end of the log

    def follow(self, wanted: Wanted) -> bool:
        """Store the existing log and new lines, as long as the connection lasts. Return whether the log is complete.

        Raises Overtaken, and BackendUnavailable if the call should be repeated a little later.
        """
        while True:
            seen = self._backend.container(wanted.ref, wanted.name)
            if not seen.pod:
                return self._without_pod(wanted)
            if not seen.begun:
                return False
            before = self._log.revision
            try:
                self._read(wanted, seen)
            except BackendUnavailable as problem:
                self._failures += 1
                if not seen.ended or self._failures < TRIES:
                    raise
                return self._end(wanted, UNREAD(why=problem))
            if self._log.revision == before:
                # After the end, a reading without new lines proves that the reading before was complete.
                return seen.ended and self._end(wanted)

    def _without_pod(self, wanted: Wanted) -> bool:
        began = bool(self._log.taken.place.pod)
        if not began and not wanted.stopping:
            return False
        return self._end(wanted, GONE if began and not self._whole else "")

    def _read(self, wanted: Wanted, seen: Container) -> None:
        """Read the log over one connection."""
        place = self._log.taken.place
        reading = Reading(place if place.pod == seen.pod else Place(seen.pod))
        self._whole = False
        for chunk in self._backend.printed(wanted.ref, wanted.name, reading.place.since):
            self._take(wanted, reading.feed(chunk), reading.place)
        if seen.ended:
            self._take(wanted, reading.end(), reading.place)
        self._failures, self._whole = 0, True

    def _take(self, wanted: Wanted, lines: Sequence[Line], place: Place) -> None:
        if lines:
            self._log = ingest.take(self._log, ingest.piece(self._log.taken, lines, place, wanted.cap))
            self._let_go()

    def _end(self, wanted: Wanted, remark: str = "") -> bool:
        entry, taken = (time.time(), remark) if remark else None, self._log.taken
        self._log = ingest.take(self._log, ingest.piece(taken, (), taken.place, wanted.cap, entry), over=True)
        return True
