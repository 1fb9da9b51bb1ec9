"""Input of a simulation: jobs and demands that come over time, and the times of the cluster. Plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from jobs.elastic.policy.model import Amounts, Job, Node, Service


@dataclass(frozen=True)
class Timing:
    """Times of the simulated cluster, in seconds. Ranges are uniform distributions.

    ``calls``: calls per second that create or stop pods. ``reaction``: from an event to the decision about it; None:
    decisions only every ``interval`` and when a job is submitted. ``task``: the most time that a stopped trainer loses.
    """

    start: tuple[float, float] = (1.0, 3.0)
    stop: tuple[float, float] = (1.0, 3.0)
    calls: float = 20.0
    interval: float = 5.0
    reaction: float | None = 0.5
    task: float = 2.0


@dataclass(frozen=True)
class Arrival:
    """A job that is submitted at ``at`` seconds.

    It ends after ``work`` trainer-seconds, or ``duration`` seconds after its first trainer began, or not at all. n
    trainers do the work of n / (1 + scaling * (n - 1)).
    """

    at: float
    job: Job
    work: float | None = None
    duration: float | None = None
    scaling: float = 0.0


@dataclass(frozen=True)
class Demand:
    """A change of the desired replicas of a service at ``at`` seconds."""

    at: float
    service: str
    wanted: int


@dataclass(frozen=True)
class Workload:
    """Input of a simulation.

    ``services``: those that exist at the beginning, with their initial demand. ``window``: the seconds over which
    metrics are taken. The simulation ends at ``until``, and with ``until_done`` also once all jobs have ended.
    ``profiled``: numbers of trainers for which the speed of every job is known beforehand.
    """

    nodes: Sequence[Node]
    arrivals: Sequence[Arrival]
    services: Sequence[Service] = ()
    demands: Sequence[Demand] = ()
    window: float = 550.0
    until: float = 550.0
    until_done: bool = False
    limits: Mapping[str, Amounts] = field(default_factory=dict)
    profiled: Sequence[int] = ()
