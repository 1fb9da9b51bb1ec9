"""Checksums of uploaded files, read back from the staging file.

Reading starts while later parts are still arriving, so that little is left to read after the last one.

A part is identified by its mark, which changes with its bytes: its mark is removed before other bytes replace it
(``datasets.uploads.parts``). So what was read stays valid as long as the marks are the same.
"""

from __future__ import annotations

import errno
import hashlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from datasets import messages
from datasets.checksums import Running
from datasets.manifest import Parts
from datasets.storage.base import StorageError

_PIECE = 1 << 20
READINGS_LIMIT = 1000  # files in progress at the same time; beyond that, the oldest is read again when it is completed


@dataclass(frozen=True)
class Gathering:
    """Staging file of an upload. ``name`` changes whenever the upload starts over."""

    name: UUID
    path: Path
    parts: Parts


@dataclass(frozen=True)
class Progress:
    """Progress of a reading: ``done`` bytes are read. ``sha256`` is set at the end."""

    done: int
    sha256: str = ""


@dataclass
class _Reading:
    """State of one file: ``read`` holds the marks of the parts that are read, a prefix of ``wanted``."""

    of: Gathering
    wanted: tuple[int, ...] = ()
    read: list[int] = field(default_factory=list)
    done: int = 0
    digest: Running = field(default_factory=hashlib.sha256)
    running: bool = False
    given_up: bool = False
    failure: OSError | None = None

    def agrees(self, marks: Sequence[int]) -> bool:
        """Return whether what was read, or is about to be, is still current."""
        shared = min(len(self.wanted), len(marks))
        return self.wanted[:shared] == tuple(marks[:shared])


class Readings:
    """Reads files in background threads, each part once."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._readings: dict[UUID, _Reading] = {}

    def follow(self, file: Gathering, marks: Sequence[int]) -> None:
        """Read the parts with these marks, which are consecutive from the first. Returns immediately."""
        with self._changed:
            self._request(file, marks)

    def is_followed(self, file: Gathering) -> bool:
        with self._changed:
            return file.name in self._readings

    def finish(self, file: Gathering, marks: Sequence[int], seconds: float) -> Progress:
        """Wait until all parts are read, at most ``seconds``. Return the progress.

        The reading is then forgotten. A repeated call waits for the same reading. Raises StorageError if the file
        cannot be read.
        """
        with self._changed:
            reading = self._request(file, marks)
            over = self._changed.wait_for(lambda: reading.failure or len(reading.read) >= len(marks), seconds)
            if not over:
                return Progress(reading.done)
            self._forget(reading)
            if reading.failure is not None:
                raise StorageError(messages.PARTS_UNREADABLE(why=reading.failure.strerror))
            return Progress(reading.done, reading.digest.hexdigest())

    def _request(self, file: Gathering, marks: Sequence[int]) -> _Reading:
        reading = self._readings.get(file.name)
        if reading is None or not reading.agrees(marks):
            if reading is not None:
                reading.given_up = True
            reading = self._readings[file.name] = _Reading(file)
            self._drop_oldest()
        if len(marks) > len(reading.wanted):
            reading.wanted = tuple(marks)
        if not reading.running and len(reading.read) < len(reading.wanted):
            self._begin(reading)
        return reading

    def _begin(self, reading: _Reading) -> None:
        reading.running = True
        try:
            threading.Thread(target=self._run, args=(reading,), daemon=True).start()
        except RuntimeError as shortage:
            self._fail(reading, OSError(errno.EAGAIN, str(shortage)))

    def _drop_oldest(self) -> None:
        for name in list(self._readings)[:-READINGS_LIMIT]:
            self._readings.pop(name).given_up = True

    def _forget(self, reading: _Reading) -> None:
        if self._readings.get(reading.of.name) is reading:
            del self._readings[reading.of.name]

    def _run(self, reading: _Reading) -> None:
        try:
            while self._has_more(reading):
                number = len(reading.read)
                mark = reading.wanted[number]
                read_part(reading.of, number, reading.digest)
                with self._changed:
                    reading.read.append(mark)
                    reading.done += reading.of.parts.span(number)[1]
                    self._changed.notify_all()
        except OSError as failure:
            with self._changed:
                self._fail(reading, failure)
        except MemoryError:
            with self._changed:
                self._fail(reading, OSError(errno.ENOMEM, "not enough memory"))

    def _fail(self, reading: _Reading, failure: OSError) -> None:
        """Report the failure to all waiting callers. The next call reads the file again."""
        reading.failure, reading.running = failure, False
        self._forget(reading)
        self._changed.notify_all()

    def _has_more(self, reading: _Reading) -> bool:
        with self._changed:
            reading.running = not reading.given_up and len(reading.read) < len(reading.wanted)
            return reading.running


def read_part(file: Gathering, number: int, digest: Running) -> None:
    """Add the bytes of a part to the digest. Raises OSError, also if the file is too short."""
    left = file.parts.span(number)[1]
    piece = memoryview(bytearray(min(_PIECE, left)))
    with file.path.open("rb", buffering=0) as stream:
        stream.seek(file.parts.span(number)[0])
        while left:
            count = stream.readinto(piece[: min(len(piece), left)])
            if not count:
                raise OSError(errno.EIO, "the file is shorter than its parts")
            digest.update(piece[:count])
            left -= count


READINGS = Readings()
