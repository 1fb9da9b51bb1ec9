"""How far a container's log was read, and what of it is new when it is read again. Pure.

Every line has the node's time in front. One asks for a log from a whole second on, and is given again what was read
before; so a place is that second, the latest time of all lines that were taken, and how many of them lie in between. Of
the lines that come again, those that are later than the latest are new, and of the others that many are not, in the
order of the log. Times need not rise from line to line: a container's two streams are written side by side, each with
its own look at the clock.

A log that the node has rotated meanwhile begins later: its lines are fewer, never others. Where none is left of those
that were counted, there may have been more behind them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from runtime import contract

_SECOND = 10**9  # times are whole nanoseconds since 1970
_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9})\d*)?(Z|[+-]\d\d:\d\d) ")
# Of a line more is not held while its end has not come; what is shown of one is shorter.
_LONGEST = contract.LINE_LIMIT + 4096
# The node keeps longer lines in pieces of so many bytes; Kubernetes 1.20 gives each with its own time in front.
_PIECE = 16 * 1024


@dataclass(frozen=True)
class Place:
    """A place in the log of ``pod`` (a UID). ``latest``: the time of the latest line that was taken; ``within``: how
    many were taken of the same second, ``before`` of the second before."""

    pod: str = ""
    latest: int = 0
    within: int = 0
    before: int = 0

    @property
    def since(self) -> int:
        """The second from which on the log is asked for, in unix time; 0: from its beginning."""
        return max(0, self.latest // _SECOND - 1)

    def beyond(self, stamp: int) -> Place:
        """After a line of that time."""
        ahead = stamp // _SECOND - self.latest // _SECOND
        if ahead > 1:
            return replace(self, latest=stamp, within=1, before=0)
        if ahead == 1:
            return replace(self, latest=stamp, within=1, before=self.within)
        if ahead == 0:
            return replace(self, latest=max(stamp, self.latest), within=self.within + 1)
        return replace(self, before=self.before + 1) if ahead == -1 else self


@dataclass(frozen=True)
class Line:
    """A line as it was printed, and when, in nanoseconds. ``cut``: bytes of it that were not held. ``rotated``: the
    node has begun another file since the last line that was taken, and there may have been lines between."""

    stamp: int
    body: bytes
    cut: int = 0
    rotated: bool = False


class Reading:
    """One reading of a log from a place on. ``place`` is where it has come to."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._begun = place  # what comes again is told by this
        self._known = place.within + place.before
        self._again = 0
        self._skipping = bool(self._known)
        self._partial, self._cut = b"", 0

    def feed(self, chunk: bytes) -> list[Line]:
        """The new lines that ``chunk`` finishes."""
        *whole, rest = chunk.split(b"\n")
        found: list[Line] = []
        for piece in whole:
            self._grow(piece)
            found += self._finish()
        self._grow(rest)
        return found

    def end(self) -> list[Line]:
        """The line that the program left unfinished: nothing more comes."""
        return list(self._finish()) if self._partial else []

    def _grow(self, piece: bytes) -> None:
        capacity = max(0, _LONGEST - len(self._partial))
        self._partial += piece[:capacity]
        self._cut += len(piece[capacity:])

    def _finish(self) -> Iterator[Line]:
        line, cut = self._partial, self._cut
        self._partial, self._cut = b"", 0
        found = _STAMP.match(line)
        # What has no time was not printed by the program: the node says why it cannot read on.
        if found is None:
            return
        stamp = _nanoseconds(found)
        if self._is_known(stamp):
            return
        rotated, self._skipping = self._skipping and not self._again, False
        self.place = self.place.beyond(stamp)
        yield Line(stamp, _joined(line[found.end() :]), cut, rotated)

    def _is_known(self, stamp: int) -> bool:
        if not self._skipping or stamp > self._begun.latest:
            return False
        if stamp // _SECOND < self._begun.since:
            return True
        self._again += 1
        if self._again > self._known:
            self._skipping = False
        return self._skipping


def _joined(body: bytes) -> bytes:
    """Without the times before its pieces."""
    end = _PIECE
    while end < len(body):
        if found := _STAMP.match(body, end):
            body = body[:end] + body[found.end() :]
        end += _PIECE
    return body


def _nanoseconds(found: re.Match[bytes]) -> int:
    at, fraction, zone = (part.decode() if part else "" for part in found.groups())
    return _seconds(at, zone) * _SECOND + int((fraction or "0").ljust(9, "0"))


def _seconds(at: str, zone: str) -> int:
    moment = datetime.fromisoformat(at + ("+00:00" if zone == "Z" else zone))
    return int(moment.timestamp())
