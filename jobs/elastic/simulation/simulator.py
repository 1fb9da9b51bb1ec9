"""Discrete event simulation of a workload under a policy, deterministic by its seed. Pure.

The simulator passes a policy the input that a controller would, and applies its decisions on nodes with pods that take
time to be created, to start and to stop. Pods of services, and pods without a node in the decision, are placed by a
scheduler (``pod_scheduler.py``).

A trainer works while it and the servers of its job run. A stopped trainer loses its current task.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from jobs.elastic.policy.model import Amounts, Cluster, Decision, Launch, Policy
from jobs.elastic.simulation.event_loop import CallLimiter, EventLoop
from jobs.elastic.simulation.metrics import Meter, Outcome
from jobs.elastic.simulation.pod_scheduler import PodScheduler
from jobs.elastic.simulation.pods import Pod, PodState, SimulatedJob, SimulatedService, relative_speed
from jobs.elastic.simulation.workload import Arrival, Demand, Timing, Workload


def simulate(workload: Workload, policy: Policy, timing: Timing, seed: int) -> Outcome:
    """Simulate a workload. The same workload, policy, timing and seed give the same outcome."""
    return _Simulation(workload, policy, timing, random.Random(seed)).run()  # noqa: S311  chance, no secret


class DecisionTimer:
    """The times of decisions: at regular intervals, and a reaction time after a change.

    Invariant: of several changes within a reaction time only the first makes a decision due.
    """

    def __init__(self, loop: EventLoop, timing: Timing, decide: Callable[[], None]) -> None:
        self._loop, self._timing, self._decide = loop, timing, decide
        self._due: float | None = None
        self._last = -1.0

    def tick(self) -> None:
        """Decide now, and again after each interval."""
        self._decide_now()
        self._loop.at(self._loop.now + self._timing.interval, self.tick)

    def notify(self, *, always: bool = False) -> None:
        """Make a decision due after a change. ``always``: also if there are no decisions about single changes."""
        reaction = self._timing.reaction
        if reaction is None and not always:
            return
        when = max(self._loop.now + (reaction or 0.0), self._last + (reaction or 0.0))
        if self._due is None or when < self._due:
            self._due = when
            self._loop.at(when, self._decide_if_due)

    def _decide_if_due(self) -> None:
        if self._due is not None and self._due <= self._loop.now:
            self._decide_now()

    def _decide_now(self) -> None:
        self._due, self._last = None, self._loop.now
        self._decide()


class _Simulation:
    """One run: it turns the events of the workload and the decisions of the policy into changes of pods."""

    def __init__(self, workload: Workload, policy: Policy, timing: Timing, chance: random.Random) -> None:
        self._workload, self._policy, self._timing, self._chance = workload, policy, timing, chance
        self._loop = EventLoop()
        self._scheduler = PodScheduler(workload.nodes, self._loop, timing, chance, self)
        self._decisions = DecisionTimer(self._loop, timing, self._decide)
        self._jobs: dict[str, SimulatedJob] = {}
        self._services: dict[str, SimulatedService] = {}
        self._to_come = len(workload.arrivals)
        self._job_calls = CallLimiter(self._loop, timing.calls)
        self._service_calls = CallLimiter(self._loop, timing.calls)
        self._meter = Meter(workload.nodes, workload.window)

    def run(self) -> Outcome:
        self._begin_services()
        for arrival in self._workload.arrivals:
            self._loop.at(arrival.at, partial(self._submit, arrival))
        for demand in self._workload.demands:
            self._loop.at(demand.at, partial(self._change_demand, demand))
        self._loop.at(0.0, self._decisions.tick)
        self._loop.run(self._workload.until, self._is_done, self._meter.advance)
        if not self._is_done():
            self._meter.advance(self._workload.until)
        return self._meter.outcome()

    def _is_done(self) -> bool:
        return self._workload.until_done and self._to_come == 0 and not self._jobs

    # --- Events of the workload ---
    def _begin_services(self) -> None:
        """Start the initial services. Their pods run at once."""
        for service in self._workload.services:
            owner = SimulatedService(name=service.key, service=service, history=[(0.0, service.wanted)])
            self._services[service.key] = owner
            self._meter.demand(service.key, service.wanted)
            for _ in range(service.wanted):
                self._scheduler.run_at_once(owner.add(service.need))

    def _submit(self, arrival: Arrival) -> None:
        self._to_come -= 1
        job = replace(arrival.job, submitted=self._loop.now)
        counts = [count for count in self._workload.profiled if count <= job.most]
        profile = {count: relative_speed(count, arrival.scaling) for count in counts}
        self._jobs[job.key] = SimulatedJob(name=job.key, arrival=arrival, job=job, profile=profile)
        self._meter.submitted(job.key)
        self._decisions.notify(always=True)

    def _change_demand(self, demand: Demand) -> None:
        owner, calls = self._services[demand.service], self._service_calls
        owner.service = replace(owner.service, wanted=demand.wanted)
        owner.history.append((self._loop.now, demand.wanted))
        self._meter.demand(demand.service, demand.wanted)
        staying = [pod for pod in owner.pods if pod.state is not PodState.STOPPING]
        for _ in range(demand.wanted - len(staying)):
            self._scheduler.create(owner.add(owner.service.need), calls.next_call())
        surplus = len(staying) - demand.wanted
        if surplus > 0:
            unbound = [pod for pod in staying if pod.node is None]
            bound = [pod for pod in staying if pod.node is not None]
            self._chance.shuffle(bound)
            for pod in (unbound + bound)[:surplus]:
                self._scheduler.stop(pod, calls.next_call())
        self._decisions.notify()

    # --- Events of pods ---
    def pod_queued(self, pod: Pod) -> None:
        self._decisions.notify()

    def pod_runs(self, pod: Pod) -> None:
        owner = pod.owner
        self._meter.used(pod.need, 1)
        if isinstance(owner, SimulatedJob):
            owner.account(self._loop.now)
            if pod.core:
                owner.core_missing -= 1
            else:
                owner.running += 1
                self._meter.began(owner.name, self._loop.now)
            self._expect_end(owner)
        else:
            owner.running += 1
            self._meter.serves(owner.name, owner.running)

    def pod_stops(self, pod: Pod, *, ran: bool) -> None:
        owner = pod.owner
        if isinstance(owner, SimulatedJob):
            owner.account(self._loop.now)
            if pod.core:
                owner.core_missing += ran
            else:
                owner.running -= ran
                if ran and owner.core_missing == 0:
                    self._meter.lost(self._chance.uniform(0.0, self._timing.task))
            self._expect_end(owner)
        else:
            owner.running -= ran
            self._meter.serves(owner.name, owner.running)

    def pod_removed(self, pod: Pod) -> None:
        if pod.has_run:
            self._meter.used(pod.need, -1)
        self._decisions.notify()

    # --- Ends of jobs ---
    def _expect_end(self, owner: SimulatedJob) -> None:
        """Update the metrics after a change, and schedule the end of the job at the new speed."""
        self._meter.trains(owner.name, owner.productive, owner.running)
        owner.version += 1
        speed, work, version = owner.speed, owner.arrival.work, owner.version
        if work is not None and speed:
            left = max(0.0, work - owner.done)
            self._loop.at(self._loop.now + left / speed, partial(self._end, owner, version))
        began = self._meter.beginning(owner.name)
        if owner.arrival.duration is not None and began is not None:
            self._loop.at(began + owner.arrival.duration, partial(self._end, owner, None))

    def _end(self, owner: SimulatedJob, version: int | None) -> None:
        """End a job. ``version``: that of its speed for which this end was expected; None: any."""
        if owner.name not in self._jobs or (version is not None and version != owner.version):
            return
        del self._jobs[owner.name]
        self._meter.completed(owner.name, self._loop.now)
        owner.account(self._loop.now)
        self._stop_all(owner)

    # --- Decisions ---
    def _decide(self) -> None:
        now = self._loop.now
        cluster = Cluster(
            self._workload.nodes,
            [owner.observed(now) for owner in self._jobs.values()],
            [owner.observed() for owner in self._services.values()],
            self._workload.limits,
        )
        self._apply(self._policy(cluster, now))

    def _apply(self, decision: Decision) -> None:
        for key in sorted(decision.preempted):
            self._preempt(self._jobs[key])
        for key, victims in decision.victims.items():
            for name, count in victims.items():
                self._shrink(self._jobs[key], name, count)
        for key, launch in decision.launches.items():
            self._launch(self._jobs[key], launch)
        for key, grants in decision.grants.items():
            owner = self._jobs[key]
            for name, count in grants.items():
                for _ in range(count):
                    self._create(owner, owner.job.trainer, name)
            self._resized(owner, sum(grants.values()))

    def _launch(self, owner: SimulatedJob, launch: Launch) -> None:
        now, core = self._loop.now, owner.job.core
        owner.core_missing = len(launch.masters) + len(launch.servers)
        owner.since = now
        owner.job = replace(owner.job, started=now, changed=now, change=len(launch.trainers))
        for name in launch.masters:
            self._create(owner, core.master, name, core=True)
        for name in launch.servers:
            self._create(owner, core.server, name, core=True)
        for name in launch.trainers:
            self._create(owner, owner.job.trainer, name)

    def _create(self, owner: SimulatedJob, need: Amounts, name: str, *, core: bool = False) -> None:
        """Create a pod of a job, on the node that the policy chose or on one that the scheduler finds."""
        self._scheduler.create(owner.add(need, core=core), self._job_calls.next_call(), name)

    def _shrink(self, owner: SimulatedJob, name: str, count: int) -> None:
        """Stop trainers on a node, or on any if the name is empty. Those that have come least far stop first."""
        victims = [
            pod
            for pod in reversed(owner.pods)
            if not pod.core
            and pod.state in (PodState.PENDING, PodState.STARTING, PodState.RUNNING)
            and name in ("", pod.node_name)
        ]
        victims.sort(key=lambda pod: pod.state.value)
        for pod in victims[:count]:
            self._scheduler.stop(pod, self._job_calls.next_call())
        if victims or self._scheduler.has_node(name):
            self._resized(owner, -min(count, len(victims)))

    def _preempt(self, owner: SimulatedJob) -> None:
        """Stop a job whole. Its servers write a checkpoint as they stop, so that no work is lost."""
        self._stop_all(owner)
        now = self._loop.now
        owner.job = replace(owner.job, started=None, requeued=now, changed=now, change=-1)

    def _stop_all(self, owner: SimulatedJob) -> None:
        for pod in list(owner.pods):
            self._scheduler.stop(pod, self._job_calls.next_call())

    def _resized(self, owner: SimulatedJob, by: int) -> None:
        owner.job = replace(owner.job, changed=self._loop.now, change=by)
        self._meter.resized()
