"""Signs of progress of a running job, gathered from its metric points and lines. Pure.

Times are unix times at which the portal read an entry: clocks of other machines do not count, and a portal that was
away never takes its own absence for a stall.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median
from typing import Final, NamedTuple

from runtime import contract

# Windows of a trainer that are kept, and the intervals between its points.
WINDOWS: Final = 20
# A report of an open step comes every 5 s. After this time without one, the process is silent.
SILENT_SECONDS: Final = 20.0


class Measure(StrEnum):
    """What counts as progress: the first of these that the attempt has shown."""

    STEPS = "steps"
    POINTS = "points"
    LINES = "lines"


class Point(NamedTuple):
    replica: str
    key: str
    value: float


@dataclass
class TrainerSigns:
    """Signs of one trainer. Seconds of a step by part (``contract.STEP_PARTS``), newest last."""

    name: str
    windows: deque[tuple[float, Mapping[str, float]]] = field(default_factory=lambda: deque(maxlen=WINDOWS))
    paused: bool = False
    looped: bool = False  # its loop has begun
    part: str = ""  # of the open step, as in ``contract.STEP_OPEN``; empty: it was not reported
    part_seconds: float = 0.0
    still: float = 0.0
    collecting: float = 0.0
    reported: float = 0.0  # when the open step was last reported

    def is_silent(self, now: float) -> bool:
        """Return whether the process of an open step has stopped to report on it."""
        return self.looped and not self.paused and now - self.reported > SILENT_SECONDS

    def step_seconds(self) -> float | None:
        """Return the median length of a step, or None."""
        return median(sum(parts.values()) for _, parts in self.windows) if self.windows else None


@dataclass
class Signs:
    """Signs of one attempt. ``progressed``: when it last progressed, by its present measure."""

    since: float
    measure: Measure | None = None
    progressed: float = 0.0
    trainers: dict[str, TrainerSigns] = field(default_factory=dict)
    _gaps: dict[str, deque[float]] = field(default_factory=dict)
    _last: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.progressed = self.progressed or self.since

    # --- Entries -----------------------------------------------------------------------------------------------------
    def note_points(self, points: Iterable[Point], now: float) -> bool:
        """Take new points, in order. Return whether one of them is progress."""
        windows: dict[str, dict[str, float]] = {}
        reported = False
        for point in points:
            if not point.key.startswith(contract.STEP_METRICS):
                reported = True
                self._note_gap(point.replica, now)
                continue
            trainer = self.trainers.setdefault(point.replica, TrainerSigns(point.replica))
            if point.key in contract.STEP_PARTS:
                windows.setdefault(point.replica, {})[point.key] = point.value
            else:
                self._note_state(trainer, point, now)
        for name, parts in windows.items():
            trainer = self.trainers[name]
            trainer.windows.append((now, parts))
            trainer.part, trainer.looped, trainer.reported = "", True, now
        return self._progress(Measure.STEPS if windows else Measure.POINTS if reported else None, now)

    def note_lines(self, now: float) -> bool:
        """Take new lines. Return whether they are progress."""
        return self._progress(Measure.LINES, now)

    def restart(self, name: str, now: float) -> None:
        """Forget what is known of a replica that is started again, and wait for progress from now on."""
        self.trainers.pop(name, None)
        self.postpone(now)

    def postpone(self, now: float) -> None:
        """Count the time without progress from now on: entries are on their way, or a server is started again."""
        self.progressed = now

    def keep_only(self, names: Iterable[str]) -> None:
        """Forget the trainers that do not run any more."""
        for name in self.trainers.keys() - set(names):
            del self.trainers[name]

    def _progress(self, measure: Measure | None, now: float) -> bool:
        if measure is None or (self.measure is not None and _ORDER[measure] < _ORDER[self.measure]):
            return False
        self.measure, self.progressed = measure, now
        return True

    def _note_state(self, trainer: TrainerSigns, point: Point, now: float) -> None:
        trainer.reported = now
        match point.key:
            case contract.STEP_PAUSED:
                began = not trainer.looped or trainer.paused
                trainer.paused, trainer.looped = point.value > 0, True
                if began and not trainer.paused:
                    self._progress(Measure.STEPS, now)
            case contract.STEP_STILL:
                trainer.still = point.value
            case contract.STEP_COLLECTING:
                trainer.collecting = point.value
            case key if key.startswith(contract.STEP_OPEN):
                trainer.part, trainer.part_seconds = key.removeprefix(contract.STEP_OPEN), point.value

    def _note_gap(self, replica: str, now: float) -> None:
        last = self._last.get(replica)
        if last is not None and now > last:
            self._gaps.setdefault(replica, deque(maxlen=WINDOWS)).append(now - last)
        self._last[replica] = now

    # --- Summary -----------------------------------------------------------------------------------------------------
    def step_seconds(self) -> float | None:
        """Return the median length of a step of the slowest trainer, or of the gap between points; None: unknown."""
        steps = [seconds for one in self.trainers.values() if (seconds := one.step_seconds()) is not None]
        gaps = [median(found) for found in self._gaps.values() if found] if self.measure is Measure.POINTS else []
        return max(steps or gaps, default=None)


_ORDER: Mapping[Measure, int] = {Measure.LINES: 0, Measure.POINTS: 1, Measure.STEPS: 2}
