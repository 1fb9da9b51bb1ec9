"""Metrics of a simulation, computed exactly and weighted by time. Pure.

Utilisation is the fraction of all cores (of all GPUs, if jobs use any) that running pods request, as in the published
experiments. A job that has not begun when the window ends counts as having waited until then.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

from jobs.elastic.policy.model import Amounts, Node, total

_SAMPLES = 600


@dataclass(frozen=True)
class Sample:
    """Values at one moment: fraction of the cluster in use, waiting jobs, trainers by job, replicas of services."""

    at: float
    utilisation: float
    pending: int
    trainers: Mapping[str, int]
    services: Mapping[str, int]


@dataclass(frozen=True)
class Outcome:
    """Results of a simulation. Times are in seconds, ``utilisation`` is from 0 to 1.

    ``service_recovery_max``: the longest time that a service took to get the replicas of a growth; if it never got
    them, the time until its demand changed again; None: no service grew. ``service_full_recovery``: every service got
    every demand fulfilled; None: there are no services. ``trainers``: those of each job when the window ends.
    """

    utilisation: float
    wait_mean: float
    wait_median: float
    wait_p90: float
    never_started: int
    completion_mean: float | None
    trainer_seconds: float
    lost_seconds: float
    jain: float
    service_recovery_max: float | None
    service_full_recovery: bool | None
    resizes: int
    waits: Mapping[str, float] = field(default_factory=dict)
    completions: Mapping[str, float] = field(default_factory=dict)
    trainers: Mapping[str, int] = field(default_factory=dict)
    samples: Sequence[Sample] = ()


KEYS = (
    "utilisation",
    "wait_mean",
    "wait_p90",
    "never_started",
    "completion_mean",
    "trainer_seconds",
    "jain",
    "service_recovery_max",
    "service_full_recovery",
    "resizes",
)


@dataclass
class _Watched:
    """A service: since when its demand has been unfulfilled, and the recovery times so far."""

    wanted: int = 0
    running: int = 0
    since: float | None = None
    times: list[float] = field(default_factory=list)
    missed: bool = False


class Meter:
    """Recorder of the metrics. Call ``advance`` before each change, then the method of the change."""

    def __init__(self, nodes: Sequence[Node], window: float) -> None:
        self._window, self._now, self._time = window, 0.0, 0.0
        self._there = total(node.allocatable for node in nodes)
        self._by_gpu = False
        self._used = total(node.taken for node in nodes)
        self._area = [0.0, 0.0]
        self._work: dict[str, int] = {}
        self._running: dict[str, int] = {}
        self._productive = 0
        self._seconds = 0.0
        self._lost = 0.0
        self._came: dict[str, float] = {}
        self._began: dict[str, float] = {}
        self._ended: dict[str, float] = {}
        self._watched: dict[str, _Watched] = {}
        self._resizes = 0
        self._samples: list[Sample] = []
        self._step = 1.0 if math.isinf(window) else max(1.0, window / _SAMPLES)

    def advance(self, now: float) -> None:
        """Advance the time to ``now``. Nothing changes in between."""
        at, until = len(self._samples) * self._step, min(now, self._window)
        if at <= until:
            first = self._sample(at)  # All samples until then differ only in their time.
            same = (first.utilisation, first.pending, first.trainers, first.services)
            while at <= until:
                self._samples.append(Sample(at, *same))
                at = len(self._samples) * self._step
        span = min(now, self._window) - self._now
        if span > 0:
            self._area[0] += span * self._used.cpu
            self._area[1] += span * self._used.gpu
            self._seconds += span * self._productive
            self._now += span
        self._time = now

    def _sample(self, at: float) -> Sample:
        pending = len(self._came) - len(self._began)
        services = {name: each.running for name, each in self._watched.items()}
        return Sample(at, self._part(self._used.cpu, self._used.gpu), pending, dict(self._running), services)

    def _part(self, cpu: float, gpu: float) -> float:
        return gpu / self._there.gpu if self._by_gpu and self._there.gpu else cpu / max(1, self._there.cpu)

    # --- Changes ---
    def used(self, need: Amounts, sign: int) -> None:
        self._used = self._used.plus(need.times(sign))
        self._by_gpu = self._by_gpu or need.gpu > 0

    def submitted(self, key: str) -> None:
        self._came[key] = self._time
        self._running[key] = 0

    def began(self, key: str, now: float) -> None:
        self._began.setdefault(key, now)

    def beginning(self, key: str) -> float | None:
        return self._began.get(key)

    def completed(self, key: str, now: float) -> None:
        self._ended[key] = now
        self._running.pop(key, None)

    def trains(self, key: str, productive: int, running: int) -> None:
        self._productive += productive - self._work.get(key, 0)
        self._work[key] = productive
        if key not in self._ended:
            self._running[key] = running

    def lost(self, seconds: float) -> None:
        if self._time <= self._window:
            self._lost += seconds

    def resized(self) -> None:
        self._resizes += self._time <= self._window

    def demand(self, name: str, wanted: int) -> None:
        watched = self._watched.setdefault(name, _Watched())
        if watched.since is not None:
            watched.times.append(self._time - watched.since)
            watched.missed = True
        watched.since = self._time if wanted > max(watched.wanted, watched.running) else None
        watched.wanted = wanted

    def serves(self, name: str, running: int) -> None:
        watched = self._watched[name]
        watched.running = running
        if watched.since is not None and running >= watched.wanted:
            watched.times.append(self._time - watched.since)
            watched.since = None

    # --- Result ---
    def outcome(self) -> Outcome:
        waits = {key: min(self._began.get(key, self._window), self._window) - came for key, came in self._came.items()}
        times = {key: ended - self._came[key] for key, ended in self._ended.items()}
        last = self._samples[-1] if self._samples else self._sample(0.0)
        recoveries = [each for watched in self._watched.values() for each in self._recoveries(watched)]
        span = max(self._now, 1e-9)
        return Outcome(
            utilisation=self._part(self._area[0] / span, self._area[1] / span),
            wait_mean=fmean(waits.values()) if waits else 0.0,
            wait_median=median(waits.values()) if waits else 0.0,
            wait_p90=_percentile(list(waits.values()), 0.9),
            never_started=len(self._came.keys() - self._began.keys()),
            completion_mean=fmean(times.values()) if times else None,
            trainer_seconds=self._seconds - self._lost,
            lost_seconds=self._lost,
            jain=jain(list(last.trainers.values())),
            service_recovery_max=max(recoveries, default=None),
            service_full_recovery=self._all_back() if self._watched else None,
            resizes=self._resizes,
            waits=waits,
            completions=times,
            trainers=last.trainers,
            samples=tuple(self._samples),
        )

    def _all_back(self) -> bool:
        return not any(each.missed or each.since is not None for each in self._watched.values())

    def _recoveries(self, watched: _Watched) -> list[float]:
        return [*watched.times, *([self._time - watched.since] if watched.since is not None else [])]


def jain(amounts: Sequence[float]) -> float:
    """Return Jain's fairness index: 1 if all amounts are equal, 1/n if one has everything, 1 for none or only zeros."""
    squares = len(amounts) * sum(each * each for each in amounts)
    return sum(amounts) ** 2 / squares if squares else 1.0


def _percentile(values: Sequence[float], part: float) -> float:
    """Return the smallest value that at least the fraction ``part`` of the values do not exceed; 0 for none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)] if ordered else 0.0
