"""Cursor of a container's log: how far it was read, and which lines are new when it is read again. Pure.

Every line starts with the node's timestamp. A log is requested from a whole second on, so lines that were read before
come again. A place is therefore that second, the latest timestamp of all lines read, and the number of lines read from
that second on. Of the repeated lines, those later than the latest are new. Of the others, the first ones up to that
number are known, in the order of the log. Timestamps need not rise from line to line: the two streams of a container
are written concurrently, and each reads the clock itself.

A log that the node has rotated meanwhile begins later: it has fewer lines, never different ones. If none of the counted
lines is left, lines after them may be missing too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from runtime import contract

_SECOND = 10**9  # times are whole nanoseconds since 1970
_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9})\d*)?(Z|[+-]\d\d:\d\d) ")
# Bytes of an unfinished line that are buffered; the stored line is shorter.
_LONGEST = contract.LINE_LIMIT + 4096
# The node stores longer lines in pieces of this many bytes; Kubernetes 1.20 sends each with its own timestamp.
_PIECE = 16 * 1024


@dataclass(frozen=True)
class Place:
    """A place in the log of ``pod`` (a UID).

    ``latest`` is the timestamp of the latest line read, in nanoseconds. ``within`` is the number of lines read of the
    same second, ``before`` that of the second before.
    """

    pod: str = ""
    latest: int = 0
    within: int = 0
    before: int = 0

    @property
    def since(self) -> int:
        """Return the second from which the log is requested, in unix time; 0 is its beginning."""
        return max(0, self.latest // _SECOND - 1)

    def beyond(self, stamp: int) -> Place:
        """Return the place after a line with this timestamp."""
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
    """A printed line with its timestamp, in nanoseconds.

    ``cut`` is the number of its bytes that were dropped. ``rotated``: the node has begun another file since the last
    line read, and lines between them may be missing.
    """

    stamp: int
    body: bytes
    cut: int = 0
    rotated: bool = False


class Reading:
    """One reading of a log from a place on. ``place`` is the present position."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._begun = place  # identifies the repeated lines
        self._known = place.within + place.before
        self._again = 0
        self._skipping = bool(self._known)
        self._partial, self._cut = b"", 0

    def feed(self, chunk: bytes) -> list[Line]:
        """Return the new lines that ``chunk`` completes."""
        *whole, rest = chunk.split(b"\n")
        found: list[Line] = []
        for piece in whole:
            self._grow(piece)
            found += self._finish()
        self._grow(rest)
        return found

    def end(self) -> list[Line]:
        """Return the last line if it has no end, once the log has ended."""
        return list(self._finish()) if self._partial else []

    def _grow(self, piece: bytes) -> None:
        capacity = max(0, _LONGEST - len(self._partial))
        self._partial += piece[:capacity]
        self._cut += len(piece[capacity:])

    def _finish(self) -> Iterator[Line]:
        line, cut = self._partial, self._cut
        self._partial, self._cut = b"", 0
        found = _STAMP.match(line)
        # A line without a timestamp comes from the node, not from the program: it says why the node cannot read on.
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
    """Join the pieces of a line, without the timestamps before them."""
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
