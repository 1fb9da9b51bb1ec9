"""Reports on a step that takes long: the part it is in, and whether its thread moves.

A hang and an evaluation look alike from outside: no step ends. They differ inside. The thread of an evaluation reaches
other instructions or touches new memory, several times a second; one that waits for ever does neither. This module
looks at that from within, on a thread of its own that sleeps as long as steps are short. A process that is stopped, or
that holds the interpreter's lock in C code, reports nothing, which the portal notices.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final

from runtime import contract
from runtime.trainer.step_times import Emit, Part, StepTimes

# A step is reported from this age on, at this interval; in between its thread is sampled.
LONG_SECONDS: Final = 5.0
REPORT_SECONDS: Final = 5.0
SAMPLE_SECONDS: Final = 0.05
REST_SECONDS: Final = 1.0  # between two looks at short steps
# Pages of memory that a thread must touch for the first time, between two samples, to count as moving.
MOST_FAULTS: Final = 4
_READING_THREAD = "reading"
_FULL = 2  # the generation of a full collection

_OPEN: Mapping[Part, str] = {
    Part.READ: contract.STEP_OPEN_READ,
    Part.COMPUTE: contract.STEP_OPEN_COMPUTE,
    Part.WAIT: contract.STEP_OPEN_WAIT,
    Part.PUSH: contract.STEP_OPEN_PUSH,
}

Position = tuple[object, ...]


class CollectorClock:
    """Seconds spent in full garbage collections. ``start`` registers it with the interpreter."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._began: float | None = None
        self._seconds = 0.0

    def start(self) -> None:
        gc.callbacks.append(self.note)

    def note(self, phase: str, info: Mapping[str, Any]) -> None:
        """Take a notice of the collector; ``phase`` is ``start`` or ``stop``."""
        if info["generation"] != _FULL:
            return
        if phase == "start":
            self._began = self._clock()
        elif self._began is not None:
            self._seconds += self._clock() - self._began
            self._began = None

    def seconds(self) -> float:
        """Return the seconds so far, with those of a collection that is going on."""
        return self._seconds + (self._clock() - self._began if self._began is not None else 0.0)


class Stillness:
    """For how long the position of a thread has not changed. Pure but for its clock."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._position: Position = ()
        self._faults = 0
        self._since = clock()

    def note(self, position: Position, faults: int) -> None:
        """Take a sample: where the thread is, and how many pages it has touched for the first time."""
        if position != self._position or faults - self._faults > MOST_FAULTS:
            self._position, self._since = position, self._clock()
        self._faults = faults

    def seconds(self) -> float:
        return self._clock() - self._since


class StepWatch:
    """Watches the steps of one process, on a thread that ``start`` begins."""

    def __init__(self, times: StepTimes, emit: Emit, clock: Callable[[], float] = time.perf_counter) -> None:
        self._times = times
        self._emit = emit
        self._clock = clock
        self._collector = CollectorClock(clock)
        self._stillness = Stillness(clock)
        self._reported = clock()
        self._collected = 0.0

    def start(self) -> None:
        self._collector.start()
        threading.Thread(target=self._run, name="step watch", daemon=True).start()

    def _run(self) -> None:
        while True:
            time.sleep(SAMPLE_SECONDS if self.look() else REST_SECONDS)

    def look(self) -> bool:
        """Sample the thread if the step is long, and report it if that is due. Return whether it is long."""
        if self._times.open_seconds() < LONG_SECONDS:
            self._reported, self._collected = self._clock(), self._collector.seconds()
            self._stillness.note((), 0)
            return False
        self._stillness.note(*self._sample())
        now = self._clock()
        if now - self._reported >= REPORT_SECONDS:
            self._report(now)
        return True

    def _report(self, now: float) -> None:
        part = self._times.part
        collected = self._collector.seconds()
        share = (collected - self._collected) / (now - self._reported)
        self._reported, self._collected = now, collected
        if part is not Part.PAUSED:
            self._emit(
                {
                    _OPEN[part]: self._times.part_seconds(),
                    contract.STEP_STILL: self._stillness.seconds(),
                    contract.STEP_COLLECTING: min(1.0, share),
                }
            )

    def _sample(self) -> tuple[Position, int]:
        """Return the position of the thread that the step depends on, and the number of its page faults."""
        thread = self._times.thread
        if self._times.part is Part.READ:
            thread = next((one.ident or 0 for one in threading.enumerate() if one.name == _READING_THREAD), thread)
        native = next((one.native_id for one in threading.enumerate() if one.ident == thread), None)
        return position_of(sys._current_frames().get(thread)), page_faults(native)


def position_of(frame: FrameType | None) -> Position:
    """Return the instructions at which a thread is, innermost first."""
    found: list[object] = []
    while frame is not None:
        found += (frame.f_code, frame.f_lasti)
        frame = frame.f_back
    return tuple(found)


def page_faults(thread: int | None) -> int:
    """Return the page faults of a thread, by its native identifier; 0 where the system does not say."""
    with suppress(OSError, ValueError, IndexError):
        text = Path(f"/proc/self/task/{thread}/stat").read_text()
        # proc(5): minflt is field 10; the state, the first after the name, is field 3
        return int(text.rpartition(")")[2].split()[7])
    return 0
