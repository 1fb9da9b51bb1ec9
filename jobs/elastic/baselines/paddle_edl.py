"""Baselines: the autoscaler of 2017 as it was published, and jobs of a fixed size. Pure.

The published algorithm is kept with its faults. Jobs are ordered by their sizes before the tick. The free capacity of a
node grows by the replicas placed there. Memory and GPUs may be filled completely, while a job gives up GPUs above
``max_load``. Jobs have no priority. One difference: its sweeps need not terminate, and here they are bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from jobs.elastic.policy.model import Amounts, Cluster, Decision, Job, Launch, total

MAX_LOAD = 0.97
# A sweep adds or removes at most one trainer per job. A tick that converges needs fewer sweeps.
MOST_SWEEPS = 100


@dataclass
class Resources:
    """Resources of the cluster during a tick: the sum of all pods' requests, and the idle amounts of each node.

    ``refused``: a trainer found no node. Nodes only gain idle amounts within a tick, so it may find one later.
    """

    requested: Amounts
    allocatable: Amounts
    idle: dict[str, tuple[int, int]] = field(default_factory=dict)
    refused: bool = False

    def take(self, need: Amounts, count: int, node: str | None) -> None:
        if not count:  # most often
            return
        self.requested = self.requested.plus(need.times(count))
        if node is not None:
            cpu, memory = self.idle[node]
            self.idle[node] = (cpu + need.cpu * count, memory + need.memory * count)  # the published sign

    def node_for(self, need: Amounts) -> str | None:
        for name, (cpu, memory) in self.idle.items():
            if cpu >= need.cpu and memory >= need.memory:
                return name
        self.refused = True
        return None


def fulfilment(job: Job) -> float:
    """Return the fraction, 0 to 1, that a job has of the trainers allowed above its least."""
    return 1.0 if job.least == job.most else (job.size - job.least) / (job.most - job.least)


def in_order(jobs: Sequence[Job]) -> list[Job]:
    """Return the elastic jobs, the least fulfilled first, then those with the smallest trainers."""
    need = [job for job in jobs if job.least < job.most]
    return sorted(need, key=lambda job: (fulfilment(job), job.trainer.gpu, job.trainer.cpu, job.trainer.memory))


def scale_up(resources: Resources, job: Job, change: int, max_load: float) -> int:
    """Return 1 or 0 more trainers; a negative number if the job would have more than ``most``."""
    planned, need = job.size + change, job.trainer
    if planned >= job.most:
        given, node = job.most - planned, None
    elif resources.allocatable.memory - resources.requested.memory <= need.memory:
        given, node = 0, None
    else:
        node = resources.node_for(need)
        given = int(node is not None and _within_the_load(resources, need, max_load))
    resources.take(need, given, node)
    return given


def _within_the_load(resources: Resources, need: Amounts, max_load: float) -> bool:
    asked, there = resources.requested, resources.allocatable
    enough = int(there.cpu * max_load) - asked.cpu >= need.cpu
    return enough and (need.gpu == 0 or there.gpu - asked.gpu >= need.gpu)


def scale_down(resources: Resources, job: Job, change: int, max_load: float) -> int:
    """Return -1 or 0 trainers."""
    planned, asked, there = job.size + change, resources.requested, resources.allocatable
    over = asked.gpu > int(there.gpu * max_load) or asked.cpu > int(there.cpu * max_load)
    given = -int(planned > job.most or (over and planned > job.least))
    resources.take(job.trainer, given, None)
    return given


def sweeps(resources: Resources, jobs: Sequence[Job], max_load: float) -> Iterator[dict[str, int]]:
    """Yield the changes so far after each sweep over all jobs, up and then down. Ends if a sweep changes nothing."""
    ordered = in_order(jobs)
    changes = {job.key: 0 for job in jobs}
    restless = True
    while restless:
        restless = False
        for scale, each in ((scale_up, ordered), (scale_down, ordered[::-1])):
            for job in each:
                given = scale(resources, job, changes[job.key], max_load)
                changes[job.key] += given
                restless = restless or given != 0
        yield dict(changes)


def scale_all(resources: Resources, jobs: Sequence[Job], max_load: float = MAX_LOAD) -> dict[str, int]:
    """Return the change of each job's trainers in a tick: those after ``MOST_SWEEPS`` sweeps, or fewer.

    A sweep depends on the changes so far and on the trainers without a node. Once changes repeat, and no trainer lacked
    a node in between, the sweeps are periodic, and the result is computed without the remaining ones.
    """
    states: list[dict[str, int]] = []
    seen: dict[tuple[int, ...], int] = {}
    for number, changes in enumerate(islice(sweeps(resources, jobs, max_load), MOST_SWEEPS)):
        if resources.refused:
            resources.refused = False
            seen.clear()
        before = seen.setdefault(tuple(changes.values()), number)
        if before < number:
            return states[before + (MOST_SWEEPS - 1 - number) % (number - before)]
        states.append(changes)
    return states[-1]


def published(cluster: Cluster, now: float, max_load: float = MAX_LOAD) -> Decision:
    """Return the decision of a tick of the published controller.

    Jobs are launched on arrival with their submitted number of trainers, else with their least.
    """
    running = [job for job in cluster.jobs if job.started is not None]
    pending = any(job.running == 0 for job in running)
    candidates = [job for job in running if pending or job.running == job.size]
    changes = scale_all(_inquire(cluster), candidates, max_load)
    targets = {job.key: job.size + changes.get(job.key, 0) for job in running}
    launches = {job.key: launch(job, job.first or job.least) for job in cluster.jobs if job.started is None}
    return Decision(
        targets={**targets, **{key: len(each.trainers) for key, each in launches.items()}},
        launches=launches,
        grants={job.key: {"": changes[job.key]} for job in candidates if changes.get(job.key, 0) > 0},
        victims={job.key: {"": -changes[job.key]} for job in candidates if changes.get(job.key, 0) < 0},
    )


def fixed(cluster: Cluster, now: float) -> Decision:
    """Launch every job on arrival with its most trainers, which it keeps."""
    launches = {job.key: launch(job, job.most) for job in cluster.jobs if job.started is None}
    return Decision(
        targets={job.key: job.size or job.most for job in cluster.jobs},
        launches=launches,
    )


def for_jobs(cluster: Cluster) -> Amounts:
    """Return the amounts for all jobs together: without those of other pods and the desired replicas of services."""
    there = total(node.allocatable.minus(node.taken) for node in cluster.nodes)
    return there.minus(total(each.need.times(each.wanted) for each in cluster.services))


def launch(job: Job, trainers: int) -> Launch:
    """Return a launch of all replicas at once, with their nodes left to the scheduler of the cluster."""
    return Launch(("",) * (job.core.master != Amounts()), ("",) * job.core.servers, ("",) * trainers)


def _inquire(cluster: Cluster) -> Resources:
    """Return the sums over all pods, including those that wait for a node and those that stop."""
    idle = {node.name: node.allocatable.minus(node.taken) for node in cluster.nodes}
    waiting: list[Amounts] = []
    for job in cluster.jobs:
        _take(idle, {name: job.trainer.times(count) for name, count in job.trainers.items()}, job.held, job.leaving)
        waiting.append(job.waiting)
    for service in cluster.services:
        _take(idle, {name: service.need.times(count) for name, count in service.bound.items()}, service.leaving)
        waiting.append(service.need.times(service.missing))
    there = total(node.allocatable for node in cluster.nodes)
    requested = there.minus(total(idle.values())).plus(total(waiting))
    return Resources(requested, there, {name: (left.cpu, left.memory) for name, left in idle.items()})


def _take(idle: dict[str, Amounts], *taken: Mapping[str, Amounts]) -> None:
    for name, amounts in (pair for each in taken for pair in each.items()):
        idle[name] = idle[name].minus(amounts)
