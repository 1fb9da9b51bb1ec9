"""Measurement of one subject each: capacity in use, work of trainers, and recovery of a service. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from jobs.elastic.policy.model import Amounts, Node, total


class UsageMeter:
    """Amounts that running pods request, and their integral over time.

    It counts cores, or GPUs once a pod has requested any.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._allocatable = total(node.allocatable for node in nodes)
        self._used = total(node.taken for node in nodes)
        self._by_gpu = False
        self._core_seconds, self._gpu_seconds = 0.0, 0.0

    def add(self, need: Amounts, sign: int) -> None:
        """Count a pod that begins to run (1) or is gone (-1)."""
        self._used = self._used.plus(need.times(sign))
        self._by_gpu = self._by_gpu or need.gpu > 0

    def pass_time(self, seconds: float) -> None:
        self._core_seconds += seconds * self._used.cpu
        self._gpu_seconds += seconds * self._used.gpu

    def utilisation(self) -> float:
        """Return the fraction in use at this moment."""
        return self._part(self._used.cpu, self._used.gpu)

    def mean_utilisation(self, span: float) -> float:
        return self._part(self._core_seconds / span, self._gpu_seconds / span)

    def _part(self, cpu: float, gpu: float) -> float:
        there = self._allocatable
        return gpu / there.gpu if self._by_gpu and there.gpu else cpu / max(1, there.cpu)


class WorkMeter:
    """Seconds of trainers that work. ``lost``: the seconds whose results were lost."""

    def __init__(self) -> None:
        self.seconds, self.lost = 0.0, 0.0
        self._by_job: dict[str, int] = {}
        self._productive = 0

    def set(self, key: str, productive: int) -> None:
        """Set the number of trainers of a job that work."""
        self._productive += productive - self._by_job.get(key, 0)
        self._by_job[key] = productive

    def pass_time(self, seconds: float) -> None:
        self.seconds += seconds * self._productive


@dataclass
class ServiceMeter:
    """Recovery of a service after growths of its demand.

    ``since``: since when its demand has been unfulfilled. ``times``: the recovery times so far. ``missed``: whether a
    demand changed before it was fulfilled.
    """

    wanted: int = 0
    running: int = 0
    since: float | None = None
    times: list[float] = field(default_factory=list)
    missed: bool = False

    def demand(self, wanted: int, now: float) -> None:
        if self.since is not None:
            self.times.append(now - self.since)
            self.missed = True
        self.since = now if wanted > max(self.wanted, self.running) else None
        self.wanted = wanted

    def serve(self, running: int, now: float) -> None:
        self.running = running
        if self.since is not None and running >= self.wanted:
            self.times.append(now - self.since)
            self.since = None

    def recoveries(self, now: float) -> list[float]:
        """Return the recovery times, with the time so far of a demand that is unfulfilled."""
        return [*self.times, *([now - self.since] if self.since is not None else [])]

    @property
    def always_recovered(self) -> bool:
        return not self.missed and self.since is None
