"""Progress of a transfer: a bar with rate and remaining time on a terminal, occasional plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TaskID, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.progress import Progress as Bars

from regatta.terminal.output import print_message, size

LINE_SECONDS = 5.0


class Shown(Protocol):
    """Context manager that shows a transfer."""

    def __enter__(self) -> Shown: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def begin(self, what: str, total: int) -> None: ...

    def advance(self, count: int) -> None: ...


def shown() -> Shown:
    """Return the display that fits standard error."""
    return Bar() if sys.stderr.isatty() else Lines()


class Bar:
    """Progress bar on a terminal. The phases, hashing and sending, have separate bars."""

    def __init__(self) -> None:
        columns = (TextColumn("{task.description:<11}"), BarColumn(), DownloadColumn(binary_units=True))
        rates = (TransferSpeedColumn(), TimeRemainingColumn())
        self._bars = Bars(*columns, *rates, console=Console(stderr=True))
        self._task: TaskID | None = None

    def __enter__(self) -> Bar:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def begin(self, what: str, total: int) -> None:
        self._task = self._bars.add_task(what, total=total)

    def advance(self, count: int) -> None:
        if self._task is not None:
            self._bars.advance(self._task, count)


class Lines:
    """Progress lines for a file or a pipe: at the beginning and the end of a phase, and every few seconds between."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._what, self._done, self._total = "", 0, 0
        self._began = self._printed = 0.0

    def __enter__(self) -> Lines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing."""

    def begin(self, what: str, total: int) -> None:
        with self._lock:
            self._what, self._done, self._total = what, 0, total
            self._began = self._printed = self._clock()
            print_message(f"{what}: {size(total)}")

    def advance(self, count: int) -> None:
        with self._lock:
            self._done += count
            now = self._clock()
            if count and (now - self._printed >= LINE_SECONDS or self._done == self._total):
                self._printed = now
                print_message(self._line(now))

    def _line(self, now: float) -> str:
        seconds = max(now - self._began, 1e-3)
        rate = self._done / seconds
        left = f", {(self._total - self._done) / rate:.0f} s left" if self._done < self._total and rate else ""
        return f"{self._what}: {size(self._done)} of {size(self._total)}, {size(rate)}/s{left}"
