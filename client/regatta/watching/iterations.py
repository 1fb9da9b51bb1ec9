"""Iterations of a job: what its trainers report, in order and each once, also across restarts of the portal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from regatta.errors import TooOld, Unreachable
from regatta.models import Point

if TYPE_CHECKING:
    from regatta.job import Job

POLL_SECONDS = 0.5
LONGEST_PAUSE = 10.0  # seconds between two tries while the portal cannot be reached
_TRAINER = "trainer"
_OF_RUNTIME = "step/"  # metrics that no script reports


@dataclass(frozen=True)
class Iteration:
    """What one trainer reported at one step. ``seq`` is the cursor: later iterations have larger numbers.

    ``metrics`` has every value of that report by name, without the parts of steps (``step/...``) that the runtime
    measures. ``time`` is in seconds since 1970.
    """

    seq: int
    time: float
    attempt: int
    replica: str
    step: float
    metrics: Mapping[str, float]

    @property
    def cost(self) -> float | None:
        """The metric ``cost``; None if this report has none."""
        return self.metrics.get("cost")

    def __getitem__(self, name: str) -> float:
        return self.metrics[name]


@dataclass(frozen=True)
class Poll:
    """Job at one moment, and what came since the poll before. ``problem``: why the portal was not reached."""

    job: Job
    iterations: Sequence[Iteration] = ()
    problem: str = ""


def polls(job: Job, after: int = 0, *, stop: Callable[[], bool] = lambda: False) -> Iterator[Poll]:
    """Yield until the job has ended and all is read, or ``stop()`` is true.

    While the portal cannot be reached, the same cursor is tried again, with growing pauses and without an end.
    Other errors of the portal are raised.
    """
    reports = Reports()
    failures = 0
    while not stop():
        try:
            # Read before the points: the data of an ended job is complete when its state says so.
            now = job.refresh()
            for points in job.point_pages(after):
                after = points.last
                job = now
                yield Poll(now, reports.add(points.points))
        except Unreachable as error:
            if isinstance(error, TooOld):
                raise
            yield Poll(job, problem=error.detail)
            job.sleep(min(POLL_SECONDS * 2**failures, LONGEST_PAUSE))
            failures += 1
            continue
        failures = 0
        if now.ended:
            yield Poll(now, reports.rest())
            return
        job.sleep(POLL_SECONDS)


class Reports:
    """Joins the points of one report. A report is complete when another begins, or at the end of the job."""

    def __init__(self) -> None:
        self._open: list[Point] = []

    def add(self, points: Sequence[Point]) -> list[Iteration]:
        """Return the reports that are complete. Without new points, the last one is complete, too."""
        done: list[Iteration] = []
        for point in points:
            if not point.replica.startswith(_TRAINER) or point.key.startswith(_OF_RUNTIME):
                continue
            if self._open and not self._continues(point):
                done += self.rest()
            self._open.append(point)
        return done if points else [*done, *self.rest()]

    def rest(self) -> list[Iteration]:
        """Return the report that is not followed by another yet."""
        if not self._open:
            return []
        last, values = self._open[-1], {point.key: point.value for point in self._open}
        self._open = []
        return [Iteration(last.seq, last.time, last.attempt, last.replica, last.step, values)]

    def _continues(self, point: Point) -> bool:
        first = self._open[0]
        same = (point.attempt, point.replica, point.step) == (first.attempt, first.replica, first.step)
        return same and point.key not in {one.key for one in self._open}
