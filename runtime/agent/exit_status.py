"""Messages for how a process ended. Pure."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePath
from typing import Any

from runtime import contract
from runtime.messages import Message
from runtime.messages import training as messages
from runtime.messages.composition import prefixed

_FRAME = re.compile(r'  File "(?P<path>.+)", line (?P<line>\d+)')
_EXCEPTION = re.compile(r"(?P<kind>[A-Za-z_][\w.]*)(:|$)")
_LONGEST_MESSAGE = 300
# PyTorch marks every line of an error with the rank of its process.
_RANK = re.compile(r"\[rank\d+\]: ?")


class Force(StrEnum):
    """Reason for which the agent itself ended the process."""

    MEMORY = "memory"
    PROCESSES = "processes"
    DISK = "disk"
    UNMEASURED = "unmeasured"  # its usage could not be measured
    UNWATCHED = "unwatched"  # its end could not be waited for
    NETWORK = "network"  # other processes can no longer join its network
    STOPPED = "stopped"
    KILLED = "killed"  # was asked to stop and did not
    FENCED = "fenced"
    REPLACED = "replaced"
    UNHEARD = "unheard"


# Exit code of a process that the agent ended for one of these reasons: a request to retry, or its own failure.
_CODES = {
    Force.FENCED: contract.EXIT_RESTART,
    Force.NETWORK: contract.EXIT_RESTART,
    Force.UNWATCHED: contract.EXIT_RESTART,
    Force.PROCESSES: contract.EXIT_ERROR,
    Force.DISK: contract.EXIT_ERROR,
    Force.UNMEASURED: contract.EXIT_ERROR,
}


@dataclass(frozen=True)
class Forced:
    force: Force
    why: str


@dataclass(frozen=True)
class Ending:
    """The facts of an exit and the message that describes them. ``why`` is empty after a success."""

    code: int | None
    signal: int | None
    out_of_memory: bool
    why: str

    def facts(self) -> dict[str, Any]:
        return {"code": self.code, "signal": self.signal, "out_of_memory": self.out_of_memory, "why": self.why}


class TracebackReader:
    """Reader of stderr that keeps the last Python error: its line, and the user's line that led to it.

    ``reported``: the message of an error of the runtime, which the process sent over its link with its code.
    """

    def __init__(self, work: str) -> None:
        self._work = work.rstrip("/") + "/"
        self._inside = False
        self._place = ""
        self._error = ""
        self.reported = ""
        self.out_of_memory = False
        self._error_place = ""

    @property
    def error(self) -> str:
        """The last error and its place; empty if there is none."""
        kind = self._error.removesuffix(f": {self.reported}")
        error = prefixed(kind, self.reported) if self.reported and kind != self._error else self._error
        return messages.ERROR_AT(error=error, place=self._error_place) if self._error_place else error

    def feed(self, lines: list[str]) -> None:
        for line in (_RANK.sub("", line, count=1) if line.startswith("[rank") else line for line in lines):
            if self._inside or line.startswith(("Traceback ", '  File "')):
                self._take(line)

    def _take(self, line: str) -> None:
        if line.startswith("Traceback "):
            self._inside, self._place = True, ""
        elif frame := _FRAME.match(line):
            self._inside = True
            self._place = self._place_of(frame["path"], frame["line"])
        elif line and not line.startswith(" "):
            self._inside = False
            self._end(line)

    def _place_of(self, path: str, line: str) -> str:
        """Return the place to report. The user's own files take precedence over the libraries that they call."""
        if path.startswith(self._work):
            return messages.FILE_LINE(file=path.removeprefix(self._work), line=line)
        if not PurePath(path).is_absolute() and not path.startswith("<"):
            return messages.FILE_LINE(file=path, line=line)
        return self._place

    def _end(self, line: str) -> None:
        found = _EXCEPTION.match(line)
        if not found:
            return
        message = line if len(line) <= _LONGEST_MESSAGE else line[:_LONGEST_MESSAGE] + " …"
        self._error, self._error_place = message, self._place
        self.out_of_memory = found["kind"].endswith("MemoryError")


def ending(status: int, forced: Forced | None, error: TracebackReader, memory: int, cpu_seconds: int) -> Ending:
    """Describe an exit. ``status`` is as in ``subprocess``: the exit code, or minus the number of the signal."""
    code, number = (status, None) if status >= 0 else (None, -status)
    if forced:
        if forced.force in _CODES:
            code, number = _CODES[forced.force], None
        return Ending(code, number, forced.force is Force.MEMORY, forced.why)
    if number is not None:
        return Ending(None, number, False, _ended_by(number, cpu_seconds))
    if not code:
        return Ending(code, None, False, "")
    if error.out_of_memory:
        return Ending(code, None, True, _out_of_memory(memory))
    if error.error:
        return Ending(code, None, False, messages.EXITED_WITH_ERROR(code=code, error=error.error))
    return Ending(code, None, False, messages.EXITED(code=code))


def mebibytes(size: int) -> str:
    return f"{round(size / 2**20):,} MiB"


def _out_of_memory(limit: int) -> Message:
    return messages.OUT_OF_MEMORY_LIMIT(limit=mebibytes(limit)) if limit else messages.OUT_OF_MEMORY()


def _ended_by(number: int, cpu_seconds: int) -> str:
    if number == signal.SIGXCPU and cpu_seconds:
        return messages.CPU_TIME_EXCEEDED(seconds=f"{cpu_seconds:,}")
    try:
        name = f" ({signal.Signals(number).name})"
    except ValueError:
        name = ""
    return messages.TERMINATED_BY_SIGNAL(signal=f"{number}{name}")
