"""Metrics of a simulation, computed exactly and weighted by time. Pure.

Utilisation is the fraction of all cores (of all GPUs, if jobs use any) that running pods request, as in the published
experiments. A job that has not begun when the window ends counts as having waited until then.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

from jobs.elastic.policy.model import Amounts, Node
from jobs.elastic.simulation.meters import ServiceMeter, UsageMeter, WorkMeter

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


class Meter:
    """Recorder of the metrics. Call ``advance`` before each change, then the method of the change."""

    def __init__(self, nodes: Sequence[Node], window: float) -> None:
        self._window, self._measured, self._now = window, 0.0, 0.0
        self._usage, self._work = UsageMeter(nodes), WorkMeter()
        self._services: dict[str, ServiceMeter] = {}
        self._running: dict[str, int] = {}
        self._submitted: dict[str, float] = {}
        self._began: dict[str, float] = {}
        self._ended: dict[str, float] = {}
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
        span = min(now, self._window) - self._measured
        if span > 0:
            self._usage.pass_time(span)
            self._work.pass_time(span)
            self._measured += span
        self._now = now

    def _sample(self, at: float) -> Sample:
        pending = len(self._submitted) - len(self._began)
        services = {name: each.running for name, each in self._services.items()}
        return Sample(at, self._usage.utilisation(), pending, dict(self._running), services)

    # --- Changes ---
    def used(self, need: Amounts, sign: int) -> None:
        self._usage.add(need, sign)

    def submitted(self, key: str) -> None:
        self._submitted[key] = self._now
        self._running[key] = 0

    def began(self, key: str, now: float) -> None:
        self._began.setdefault(key, now)

    def beginning(self, key: str) -> float | None:
        return self._began.get(key)

    def completed(self, key: str, now: float) -> None:
        self._ended[key] = now
        self._running.pop(key, None)

    def trains(self, key: str, productive: int, running: int) -> None:
        self._work.set(key, productive)
        if key not in self._ended:
            self._running[key] = running

    def lost(self, seconds: float) -> None:
        if self._now <= self._window:
            self._work.lost += seconds

    def resized(self) -> None:
        self._resizes += self._now <= self._window

    def demand(self, name: str, wanted: int) -> None:
        self._services.setdefault(name, ServiceMeter()).demand(wanted, self._now)

    def serves(self, name: str, running: int) -> None:
        self._services[name].serve(running, self._now)

    # --- Result ---
    def outcome(self) -> Outcome:
        window, submitted, services = self._window, self._submitted, self._services.values()
        waits = {key: min(self._began.get(key, window), window) - came for key, came in submitted.items()}
        times = {key: ended - submitted[key] for key, ended in self._ended.items()}
        last = self._samples[-1] if self._samples else self._sample(0.0)
        recoveries = [each for service in services for each in service.recoveries(self._now)]
        return Outcome(
            utilisation=self._usage.mean_utilisation(max(self._measured, 1e-9)),
            wait_mean=fmean(waits.values()) if waits else 0.0,
            wait_median=median(waits.values()) if waits else 0.0,
            wait_p90=_percentile(list(waits.values()), 0.9),
            never_started=len(submitted.keys() - self._began.keys()),
            completion_mean=fmean(times.values()) if times else None,
            trainer_seconds=self._work.seconds - self._work.lost,
            lost_seconds=self._work.lost,
            jain=jain(list(last.trainers.values())),
            service_recovery_max=max(recoveries, default=None),
            service_full_recovery=all(each.always_recovered for each in services) if services else None,
            resizes=self._resizes,
            waits=waits,
            completions=times,
            trainers=last.trainers,
            samples=tuple(self._samples),
        )


def jain(amounts: Sequence[float]) -> float:
    """Return Jain's fairness index: 1 if all amounts are equal, 1/n if one has everything, 1 for none or only zeros."""
    squares = len(amounts) * sum(each * each for each in amounts)
    return sum(amounts) ** 2 / squares if squares else 1.0


def _percentile(values: Sequence[float], part: float) -> float:
    """Return the smallest value that at least the fraction ``part`` of the values do not exceed; 0 for none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)] if ordered else 0.0
