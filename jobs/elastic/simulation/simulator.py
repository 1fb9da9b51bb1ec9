"""Discrete event simulation of a workload under a policy, deterministic by its seed. Pure.

The simulator passes a policy the input that a controller would, and applies its decisions on nodes with pods that take
time to be created, to start and to stop. Pods of services, and pods without a node in the decision, are placed by a
scheduler like that of Kubernetes: in order of arrival, on the node with the most free cores, and again whenever
capacity is freed.

A trainer works while it and the servers of its job run. A stopped trainer loses its current task.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial

from jobs.elastic.policy.model import (
    NOTHING,
    Amounts,
    Cluster,
    Core,
    Decision,
    Job,
    Launch,
    Node,
    Policy,
    Service,
    total,
)
from jobs.elastic.simulation.metrics import Meter, Outcome


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


def simulate(workload: Workload, policy: Policy, timing: Timing, seed: int) -> Outcome:
    """Simulate a workload. The same workload, policy, timing and seed give the same outcome."""
    return _Simulation(workload, policy, timing, random.Random(seed)).run()  # noqa: S311  chance, no secret


# Seconds that a number of trainers has to be constant for its speed to count as measured.
_MEASURED = 5.0


def _speed(trainers: int, scaling: float) -> float:
    """Return the speed relative to one trainer."""
    return trainers / (1 + scaling * (trainers - 1)) if trainers else 0.0


class _State(Enum):
    PENDING = 0
    STARTING = 1
    RUNNING = 2
    STOPPING = 3
    GONE = 4


class _Pod:
    __slots__ = ("counted", "need", "node", "owner", "state", "trains")

    def __init__(self, owner: _Owner, need: Amounts, *, trains: bool = False) -> None:
        self.owner, self.need, self.trains = owner, need, trains
        self.node = -1
        self.state = _State.PENDING
        self.counted = False


@dataclass
class _Owner:
    """Common part of jobs and services: pods on nodes."""

    name: str
    pods: dict[_Pod, None] = field(default_factory=dict)
    bound: Counter[int] = field(default_factory=Counter)
    held: dict[int, Amounts] = field(default_factory=dict)
    leaving: dict[int, Amounts] = field(default_factory=dict)
    running: int = 0


@dataclass
class _Run(_Owner):
    """A job. ``core``: the number of its masters and servers that do not run yet."""

    arrival: Arrival = field(default_factory=lambda: Arrival(0.0, Job("", 0, 0, NOTHING)))
    job: Job = field(default_factory=lambda: Job("", 0, 0, NOTHING))
    core: int = 0
    done: float = 0.0
    attained: float = 0.0
    since: float = 0.0
    version: int = 0
    speeds: dict[int, float] = field(default_factory=dict)
    profile: Mapping[int, float] = field(default_factory=dict)


@dataclass
class _Served(_Owner):
    service: Service = field(default_factory=lambda: Service("", NOTHING, 0))
    history: list[tuple[float, int]] = field(default_factory=list)


class _Simulation:
    def __init__(self, workload: Workload, policy: Policy, timing: Timing, chance: random.Random) -> None:
        self.workload, self.policy, self.timing, self.chance = workload, policy, timing, chance
        self.now = 0.0
        self._coming = len(workload.arrivals)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._numbers = {node.name: number for number, node in enumerate(workload.nodes)}
        self._names = [node.name for node in workload.nodes]
        self._free = [list(node.allocatable.minus(node.taken)) for node in workload.nodes]
        self._runs: dict[str, _Run] = {}
        self._services: dict[str, _Served] = {}
        self._pending: deque[_Pod] = deque()
        self._scheduling = False
        self._deciding: float | None = None
        self._decided = -1.0
        self._ours = 0.0
        self._theirs = 0.0
        self.meter = Meter(workload.nodes, workload.window)

    def run(self) -> Outcome:
        self._fill_services()
        for arrival in self.workload.arrivals:
            self._at(arrival.at, partial(self._arrive, arrival))
        for demand in self.workload.demands:
            self._at(demand.at, partial(self._change_demand, demand))
        self._at(0.0, self._tick)
        while self._events[0][0] <= self.workload.until and not self._is_done():
            self.now, _, happen = heapq.heappop(self._events)
            self.meter.advance(self.now)
            happen()
        if not self._is_done():
            self.meter.advance(self.workload.until)
        return self.meter.outcome()

    def _is_done(self) -> bool:
        return self.workload.until_done and self._coming == 0 and not self._runs

    def _at(self, when: float, happen: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (when, self._count, happen))

    # --- Events of the workload ---
    def _fill_services(self) -> None:
        """Start the initial services. Their pods run at once."""
        for service in self.workload.services:
            served = _Served(service.key, service=service, history=[(0.0, service.wanted)])
            self._services[service.key] = served
            self.meter.demand(service.key, service.wanted)
            for _ in range(service.wanted):
                pod = _Pod(served, service.need)
                served.pods[pod] = None
                node = self._node_for(pod)
                if node >= 0:
                    self._bind(pod, node)
                    self._runs_now(pod)
                else:
                    self._pending.append(pod)

    def _arrive(self, arrival: Arrival) -> None:
        self._coming -= 1
        job = replace(arrival.job, submitted=self.now)
        profile = {count: _speed(count, arrival.scaling) for count in self.workload.profiled if count <= job.most}
        self._runs[job.key] = _Run(job.key, arrival=arrival, job=job, profile=profile)
        self.meter.submitted(job.key)
        self._wake(always=True)

    def _change_demand(self, demand: Demand) -> None:
        served = self._services[demand.service]
        served.service = replace(served.service, wanted=demand.wanted)
        served.history.append((self.now, demand.wanted))
        self.meter.demand(demand.service, demand.wanted)
        staying = [pod for pod in served.pods if pod.state is not _State.STOPPING]
        for _ in range(demand.wanted - len(staying)):
            pod = _Pod(served, served.service.need)
            served.pods[pod] = None
            self._at(self._their_call(), partial(self._queue, pod))
        surplus = len(staying) - demand.wanted
        if surplus > 0:
            unbound = [pod for pod in staying if pod.node < 0]
            bound = [pod for pod in staying if pod.node >= 0]
            self.chance.shuffle(bound)
            for pod in (unbound + bound)[:surplus]:
                self._stop(pod, self._their_call())
        self._wake()

    # --- Pods ---
    def _our_call(self) -> float:
        self._ours = max(self._ours, self.now) + 1 / self.timing.calls
        return self._ours

    def _their_call(self) -> float:
        self._theirs = max(self._theirs, self.now) + 1 / self.timing.calls
        return self._theirs

    def _make(self, run: _Run, need: Amounts, name: str, *, trains: bool) -> None:
        """Create a pod of a job, on the node that the policy chose or on one that the scheduler finds."""
        pod = _Pod(run, need, trains=trains)
        run.pods[pod] = None
        made, number = self._our_call(), self._numbers.get(name, -1)
        if number >= 0 and self._fits(pod, number):
            self._bind(pod, number)
            self._at(made + self.chance.uniform(*self.timing.start), partial(self._runs_now, pod))
        else:
            self._at(made, partial(self._queue, pod))

    def _queue(self, pod: _Pod) -> None:
        if pod.state is _State.PENDING:
            self._pending.append(pod)
            self._schedule_soon()
            self._wake()

    def _schedule_soon(self) -> None:
        if not self._scheduling:
            self._scheduling = True
            self._at(self.now, self._schedule)

    def _schedule(self) -> None:
        self._scheduling = False
        hopeless: set[Amounts] = set()
        waiting: deque[_Pod] = deque()
        for pod in self._pending:
            if pod.state is not _State.PENDING:
                continue
            node = -1 if pod.need in hopeless else self._node_for(pod)
            if node < 0:
                hopeless.add(pod.need)
                waiting.append(pod)
            else:
                self._bind(pod, node)
                self._at(self.now + self.chance.uniform(*self.timing.start), partial(self._runs_now, pod))
        self._pending = waiting

    def _node_for(self, pod: _Pod) -> int:
        fitting = (number for number in range(len(self._free)) if self._fits(pod, number))
        return max(fitting, key=lambda number: (self._free[number][0], -number), default=-1)

    def _fits(self, pod: _Pod, number: int) -> bool:
        free, need = self._free[number], pod.need
        return free[0] >= need[0] and free[1] >= need[1] and free[2] >= need[2]

    def _bind(self, pod: _Pod, number: int) -> None:
        pod.node, pod.state = number, _State.STARTING
        self._occupy(number, pod.need, -1)
        if pod.trains or isinstance(pod.owner, _Served):
            pod.owner.bound[number] += 1
        else:
            pod.owner.held[number] = pod.owner.held.get(number, NOTHING).plus(pod.need)

    def _occupy(self, number: int, need: Amounts, sign: int) -> None:
        free = self._free[number]
        for i in range(3):
            free[i] += sign * need[i]

    def _runs_now(self, pod: _Pod) -> None:
        if pod.state is not _State.STARTING:
            return
        owner, pod.state, pod.counted = pod.owner, _State.RUNNING, True
        self.meter.used(pod.need, 1)
        if isinstance(owner, _Served):
            owner.running += 1
            self.meter.serves(owner.name, owner.running)
            return
        assert isinstance(owner, _Run)  # noqa: S101
        self._account(owner)
        if pod.trains:
            owner.running += 1
            self.meter.began(owner.name, self.now)
        else:
            owner.core -= 1
        self._progress(owner)

    def _stop(self, pod: _Pod, called: float) -> None:
        """Mark a pod as stopping. The call that stops it is made at ``called``."""
        owner, was = pod.owner, pod.state
        if was is _State.PENDING:
            self._gone(pod)
        if was not in (_State.STARTING, _State.RUNNING):
            return
        pod.state = _State.STOPPING
        owner.leaving[pod.node] = owner.leaving.get(pod.node, NOTHING).plus(pod.need)
        if isinstance(owner, _Run):
            self._leave(owner, pod, trained=was is _State.RUNNING)
        else:
            self._unbind(owner, pod, ran=was is _State.RUNNING)
            self.meter.serves(owner.name, owner.running)
        self._at(called + self.chance.uniform(*self.timing.stop), partial(self._gone, pod))

    def _leave(self, run: _Run, pod: _Pod, *, trained: bool) -> None:
        self._account(run)
        if not pod.trains:
            run.held[pod.node] = run.held[pod.node].minus(pod.need)
            run.core += trained
        else:
            self._unbind(run, pod, ran=trained)
            if trained and run.core == 0:
                self.meter.lost(self.chance.uniform(0.0, self.timing.task))
        self._progress(run)

    def _unbind(self, owner: _Owner, pod: _Pod, *, ran: bool) -> None:
        owner.bound[pod.node] -= 1
        if not owner.bound[pod.node]:
            del owner.bound[pod.node]
        owner.running -= ran

    def _gone(self, pod: _Pod) -> None:
        owner, was, pod.state = pod.owner, pod.state, _State.GONE
        owner.pods.pop(pod, None)
        if was is _State.PENDING:
            return
        owner.leaving[pod.node] = owner.leaving[pod.node].minus(pod.need)
        if owner.leaving[pod.node] == NOTHING:
            del owner.leaving[pod.node]
        self._occupy(pod.node, pod.need, 1)
        if pod.counted:
            self.meter.used(pod.need, -1)
        if self._pending:
            self._schedule_soon()
        self._wake()

    # --- Work ---
    def _speed(self, run: _Run) -> float:
        return _speed(run.running if run.core == 0 else 0, run.arrival.scaling)

    def _account(self, run: _Run) -> None:
        """Add the work since the last change of a job, and its speed if it was constant for long enough."""
        speed, length = self._speed(run), self.now - run.since
        run.done += length * speed
        run.attained += length * run.running
        run.since = self.now
        if speed and length >= _MEASURED:
            run.speeds[run.running] = speed

    def _progress(self, run: _Run) -> None:
        """Update the metrics after a change, and schedule the end of the job at the new speed."""
        self.meter.trains(run.name, run.running if run.core == 0 else 0, run.running)
        run.version += 1
        speed, work, version = self._speed(run), run.arrival.work, run.version
        if work is not None and speed:
            self._at(self.now + max(0.0, work - run.done) / speed, partial(self._end, run, version))
        began = self.meter.beginning(run.name)
        if run.arrival.duration is not None and began is not None:
            self._at(began + run.arrival.duration, partial(self._end, run, None))

    def _end(self, run: _Run, version: int | None) -> None:
        if run.name not in self._runs or (version is not None and version != run.version):
            return
        del self._runs[run.name]
        self.meter.completed(run.name, self.now)
        self._account(run)
        for pod in list(run.pods):
            self._stop(pod, self._our_call())

    # --- Decisions ---
    def _tick(self) -> None:
        self._decide()
        self._at(self.now + self.timing.interval, self._tick)

    def _wake(self, *, always: bool = False) -> None:
        reaction = self.timing.reaction
        if reaction is None and not always:
            return
        when = max(self.now + (reaction or 0.0), self._decided + (reaction or 0.0))
        if self._deciding is None or when < self._deciding:
            self._deciding = when
            self._at(when, self._decide_if_due)

    def _decide_if_due(self) -> None:
        if self._deciding is not None and self._deciding <= self.now:
            self._decide()

    def _decide(self) -> None:
        self._deciding, self._decided = None, self.now
        self._apply(self.policy(self._seen(), self.now))

    def _seen(self) -> Cluster:
        return Cluster(
            self.workload.nodes,
            [self._seen_job(run) for run in self._runs.values()],
            [self._seen_service(served) for served in self._services.values()],
            self.workload.limits,
        )

    def _seen_job(self, run: _Run) -> Job:
        pending = [pod for pod in run.pods if pod.state is _State.PENDING]
        since, work = self.now - run.since, run.arrival.work
        return replace(
            run.job,
            trainers=self._named(run.bound),
            pending=sum(pod.trains for pod in pending),
            running=run.running,
            speeds={**run.profile, **run.speeds},
            attained=run.attained + since * run.running,
            remaining=None if work is None else max(0.0, work - run.done - since * self._speed(run)),
            held={self._names[number]: held for number, held in run.held.items()},
            leaving={self._names[number]: left for number, left in run.leaving.items()},
            waiting=total(pod.need for pod in pending),
        )

    def _seen_service(self, served: _Served) -> Service:
        return replace(
            served.service,
            bound=self._named(served.bound),
            leaving={self._names[number]: left for number, left in served.leaving.items()},
            history=tuple(served.history),
        )

    def _named(self, by_number: Counter[int]) -> dict[str, int]:
        return {self._names[number]: count for number, count in by_number.items()}

    def _apply(self, decision: Decision) -> None:
        for key in sorted(decision.preempted):
            self._preempt(self._runs[key])
        for key, victims in decision.victims.items():
            for name, count in victims.items():
                self._shrink(self._runs[key], name, count)
        for key, launch in decision.launches.items():
            self._launch(self._runs[key], launch)
        for key, grants in decision.grants.items():
            run = self._runs[key]
            for name, count in grants.items():
                for _ in range(count):
                    self._make(run, run.job.trainer, name, trains=True)
            self._changed(run, sum(grants.values()))

    def _launch(self, run: _Run, launch: Launch) -> None:
        core: Core = run.job.core
        run.core = len(launch.masters) + len(launch.servers)
        run.since = self.now
        run.job = replace(run.job, started=self.now, changed=self.now, change=len(launch.trainers))
        parts = ((launch.masters, core.master), (launch.servers, core.server), (launch.trainers, run.job.trainer))
        for names, need in parts:
            for name in names:
                self._make(run, need, name, trains=names is launch.trainers)

    def _shrink(self, run: _Run, name: str, count: int) -> None:
        number = self._numbers.get(name, -1)
        mine = [
            pod
            for pod in reversed(run.pods)
            if pod.trains
            and pod.state in (_State.PENDING, _State.STARTING, _State.RUNNING)
            and name in ("", self._name(pod))
        ]
        mine.sort(key=lambda pod: pod.state.value)
        for pod in mine[:count]:
            self._stop(pod, self._our_call())
        if number >= 0 or mine:
            self._changed(run, -min(count, len(mine)))

    def _name(self, pod: _Pod) -> str:
        return self._names[pod.node] if pod.node >= 0 else ""

    def _preempt(self, run: _Run) -> None:
        """Stop a job whole. Its servers write a checkpoint as they stop, so that no work is lost."""
        for pod in list(run.pods):
            self._stop(pod, self._our_call())
        run.job = replace(run.job, started=None, requeued=self.now, changed=self.now, change=-1)

    def _changed(self, run: _Run, by: int) -> None:
        run.job = replace(run.job, changed=self.now, change=by)
        self.meter.resized()
