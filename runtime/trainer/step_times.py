"""Time of a trainer's steps, split into parts, as metrics of the job.

A step begins when its batch is requested and ends when the next one is. The thread that iterates over the batches
switches between the parts; calls of other threads, such as a push in the background, change nothing. The means of the
steps of at least ``WINDOW_SECONDS`` become points, so the number of points does not depend on the length of a step.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from typing import Final

from runtime import contract

WINDOW_SECONDS: Final = 2.0

Emit = Callable[[Mapping[str, float]], object]


class Part(IntEnum):
    """Activities of the thread that iterates over the batches. ``PAUSED``: no step is expected."""

    READ = 0
    COMPUTE = 1
    WAIT = 2
    PUSH = 3
    PAUSED = 4


NAMES: Mapping[Part, str] = {
    Part.READ: contract.STEP_READ,
    Part.COMPUTE: contract.STEP_COMPUTE,
    Part.WAIT: contract.STEP_WAIT,
    Part.PUSH: contract.STEP_PUSH,
}


class StepTimes:
    """Clock of the steps of one process.

    ``emit`` gets values by metric name; None: nothing is reported. ``clock`` is steady, in seconds. Any thread may read
    ``part``, ``since`` and ``began``.
    """

    def __init__(self, emit: Emit | None = None, clock: Callable[[], float] = time.perf_counter) -> None:
        self._emit = emit
        self._clock = clock
        self._thread = 0  # the thread that iterates; 0: none
        self._seconds = [0.0] * len(Part)  # by part, since the window began
        self._steps = 0
        self._window = 0.0
        self.part = Part.PAUSED
        self.since = 0.0  # when the part began
        self.began = 0.0  # when the last step ended, or the loop or a pause did

    # --- The loop ----------------------------------------------------------------------------------------------------
    def begin_loop(self) -> None:
        """Begin to measure: steps are expected from now on, from this thread."""
        self._thread = threading.get_ident()
        self._restart(Part.READ)
        self._report(contract.STEP_PAUSED, 0.0)

    def end_loop(self) -> None:
        """Stop measuring: no step is expected any more."""
        if self._thread:
            self._thread = 0
            self._restart(Part.PAUSED)
            self._report(contract.STEP_PAUSED, 1.0)

    def switch(self, part: Part) -> Part:
        """Begin a part; return the one before, to go back to. From another thread: do nothing."""
        if threading.get_ident() != self._thread:
            return part
        now = self._clock()
        before = self.part
        self._seconds[before] += now - self.since
        self.since, self.part = now, part
        return before

    def during(self, part: Part) -> _During:
        """Count the block as this part."""
        return _During(self, part)

    def end_step(self) -> None:
        """Count a step. Report the means if the window is long enough."""
        self._steps += 1
        now = self.began = self._clock()
        if now - self._window >= WINDOW_SECONDS:
            self._seconds[self.part] += now - self.since
            self.since = now
            means = {name: self._seconds[part] / self._steps for part, name in NAMES.items()}
            self._restart(self.part)
            if self._emit is not None:
                self._emit(means)

    @contextmanager
    def evaluation(self) -> Iterator[None]:
        """Announce that no step is expected during the block. Has no effect outside the loop, where none is anyway."""
        if threading.get_ident() != self._thread:
            yield
            return
        before = self.switch(Part.PAUSED)
        self._report(contract.STEP_PAUSED, 1.0)
        try:
            yield
        finally:
            self.switch(before)
            self.began = self.since
            self._report(contract.STEP_PAUSED, 0.0)

    def _restart(self, part: Part) -> None:
        self._seconds = [0.0] * len(Part)
        self._steps = 0
        self._window = self.since = self.began = self._clock()
        self.part = part

    def _report(self, name: str, value: float) -> None:
        if self._emit is not None:
            self._emit({name: value})

    # --- The watch ---------------------------------------------------------------------------------------------------
    @property
    def thread(self) -> int:
        """Identifier of the thread that iterates; 0 outside the loop."""
        return self._thread

    def open_seconds(self) -> float:
        """Return for how long the present step has been open; 0 while none is expected."""
        return 0.0 if self.part is Part.PAUSED else self._clock() - self.began

    def part_seconds(self) -> float:
        """Return for how long the present part has lasted."""
        return self._clock() - self.since


class _During:
    """The context of ``StepTimes.during``: a generator would take several times as long, in every step."""

    __slots__ = ("_before", "_part", "_times")

    def __init__(self, times: StepTimes, part: Part) -> None:
        self._times, self._part, self._before = times, part, part

    def __enter__(self) -> None:
        self._before = self._times.switch(self._part)

    def __exit__(self, *_: object) -> None:
        self._times.switch(self._before)
