"""Simulated pods, and the jobs and services that own them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from jobs.elastic.policy.model import NOTHING, Amounts, Job, Node, Service, total
from jobs.elastic.simulation.workload import Arrival

# Seconds that a number of trainers has to be constant for its speed to count as measured.
_MEASURED = 5.0


def relative_speed(trainers: int, scaling: float) -> float:
    """Return the speed relative to one trainer."""
    return trainers / (1 + scaling * (trainers - 1)) if trainers else 0.0


class PodState(Enum):
    """States in the order of a pod's life."""

    PENDING = 0
    STARTING = 1
    RUNNING = 2
    STOPPING = 3
    GONE = 4


class SimulatedNode:
    """A node and its free cpu, memory and GPUs."""

    __slots__ = ("free", "name")

    def __init__(self, node: Node) -> None:
        self.name = node.name
        self.free = list(node.allocatable.minus(node.taken))

    def fits(self, need: Amounts) -> bool:
        free = self.free
        return free[0] >= need[0] and free[1] >= need[1] and free[2] >= need[2]

    def take(self, need: Amounts) -> None:
        for i in range(3):
            self.free[i] -= need[i]

    def give_back(self, need: Amounts) -> None:
        for i in range(3):
            self.free[i] += need[i]


class Pod:
    """A replica. ``core``: it is a master or a server of a job. ``has_run``: it has begun to run at some time."""

    __slots__ = ("core", "has_run", "need", "node", "owner", "state")

    def __init__(self, owner: PodOwner, need: Amounts, *, core: bool = False) -> None:
        self.owner, self.need, self.core = owner, need, core
        self.node: SimulatedNode | None = None
        self.state = PodState.PENDING
        self.has_run = False

    @property
    def node_name(self) -> str:
        return self.node.name if self.node is not None else ""


@dataclass(kw_only=True, eq=False)
class PodOwner:
    """A job or a service, and its pods by node.

    ``bound``: the number of its trainers, or replicas of a service. ``held``: the amounts of its masters and servers.
    ``leaving``: the amounts of its stopping pods. ``running``: its trainers or replicas that run.
    """

    name: str
    pods: dict[Pod, None] = field(default_factory=dict)
    bound: Counter[str] = field(default_factory=Counter)
    held: dict[str, Amounts] = field(default_factory=dict)
    leaving: dict[str, Amounts] = field(default_factory=dict)
    running: int = 0

    def add(self, need: Amounts, *, core: bool = False) -> Pod:
        """Create a pod without a node."""
        pod = Pod(self, need, core=core)
        self.pods[pod] = None
        return pod

    def bind(self, pod: Pod) -> None:
        """Count a pod that has got a node."""
        name = pod.node_name
        if pod.core:
            self.held[name] = self.held.get(name, NOTHING).plus(pod.need)
        else:
            self.bound[name] += 1

    def unbind(self, pod: Pod) -> None:
        """Count a pod with a node as one that stops."""
        name = pod.node_name
        self.leaving[name] = self.leaving.get(name, NOTHING).plus(pod.need)
        if pod.core:
            self.held[name] = self.held[name].minus(pod.need)
        else:
            self.bound[name] -= 1
            if not self.bound[name]:
                del self.bound[name]

    def remove(self, pod: Pod) -> None:
        """Forget a pod that has stopped."""
        name = pod.node_name
        self.leaving[name] = self.leaving[name].minus(pod.need)
        if self.leaving[name] == NOTHING:
            del self.leaving[name]


@dataclass(kw_only=True, eq=False)
class SimulatedJob(PodOwner):
    """A job and its work.

    ``core_missing``: the number of its masters and servers that do not run yet. ``done`` and ``attained``: its work and
    its trainer-seconds up to ``since``. ``version``: the number of changes of its speed.
    """

    arrival: Arrival
    job: Job
    profile: Mapping[int, float]
    core_missing: int = 0
    done: float = 0.0
    attained: float = 0.0
    since: float = 0.0
    version: int = 0
    speeds: dict[int, float] = field(default_factory=dict)

    @property
    def productive(self) -> int:
        """The number of trainers that work: those that run, while all masters and servers run."""
        return self.running if self.core_missing == 0 else 0

    @property
    def speed(self) -> float:
        return relative_speed(self.productive, self.arrival.scaling)

    def account(self, now: float) -> None:
        """Add the work since the last change of a job, and its speed if it was constant for long enough."""
        speed, length = self.speed, now - self.since
        self.done += length * speed
        self.attained += length * self.running
        self.since = now
        if speed and length >= _MEASURED:
            self.speeds[self.running] = speed

    def observed(self, now: float) -> Job:
        """Return the job as a controller would pass it to a policy."""
        pending = [pod for pod in self.pods if pod.state is PodState.PENDING]
        since, work = now - self.since, self.arrival.work
        return replace(
            self.job,
            trainers=dict(self.bound),
            pending=sum(not pod.core for pod in pending),
            running=self.running,
            speeds={**self.profile, **self.speeds},
            attained=self.attained + since * self.running,
            remaining=None if work is None else max(0.0, work - self.done - since * self.speed),
            held=dict(self.held),
            leaving=dict(self.leaving),
            waiting=total(pod.need for pod in pending),
        )


@dataclass(kw_only=True, eq=False)
class SimulatedService(PodOwner):
    """A service. ``history``: (time, desired replicas) of its changes, oldest first."""

    service: Service
    history: list[tuple[float, int]]

    def observed(self) -> Service:
        """Return the service as a controller would pass it to a policy."""
        return replace(self.service, bound=dict(self.bound), leaving=dict(self.leaving), history=tuple(self.history))
