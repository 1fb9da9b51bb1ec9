"""Input and output of a policy: plain values without behaviour, except for sums.

Amounts are integers: thousandths of a core, megabytes (10**6 bytes), GPUs. Times are seconds on one clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol


class Amounts(NamedTuple):
    cpu: int = 0
    memory: int = 0
    gpu: int = 0

    def times(self, count: int) -> Amounts:
        return Amounts(self.cpu * count, self.memory * count, self.gpu * count)

    def plus(self, other: Amounts) -> Amounts:
        return Amounts(self.cpu + other.cpu, self.memory + other.memory, self.gpu + other.gpu)

    def minus(self, other: Amounts) -> Amounts:
        return Amounts(self.cpu - other.cpu, self.memory - other.memory, self.gpu - other.gpu)


NOTHING = Amounts()
# A number larger than any amount.
UNLIMITED = 1 << 60


def total(amounts: Iterable[Amounts]) -> Amounts:
    cpu = memory = gpu = 0
    for each in amounts:
        cpu += each[0]
        memory += each[1]
        gpu += each[2]
    return Amounts(cpu, memory, gpu)


@dataclass(frozen=True, slots=True)
class Node:
    """A node. Replicas are placed on it only if they tolerate all of its taints.

    ``taken``: the amounts of pods that belong to no ``Job`` and no ``Service``.
    """

    name: str
    allocatable: Amounts
    taints: frozenset[str] = frozenset()
    taken: Amounts = NOTHING


@dataclass(frozen=True, slots=True)
class Core:
    """The replicas of a job whose number does not change while it runs: its master and its parameter servers.

    ``trainers_per_server``: if set, the number of servers is chosen at launch by the trainers that the job can expect;
    else it is ``servers``.
    """

    master: Amounts = NOTHING
    server: Amounts = NOTHING
    servers: int = 0
    trainers_per_server: int | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A job that waits (``started`` is None) or runs.

    ``least`` and ``most``: bounds of its number of trainers. ``trainers``: its trainers by node, including those that
    start. ``pending``: the number of trainers without a node. ``running``: the number of trainers that train.
    ``first``: the number that it was submitted with. ``held``: the amounts of its other replicas, by node. ``leaving``:
    the amounts of its stopping replicas, by node. ``waiting``: the amounts requested by its replicas without a node.
    ``changed``: when its number of trainers last changed. ``change``: the difference of that change. ``speeds``:
    measured records per second, by number of trainers. ``attained``: its trainer-seconds so far, including those before
    a preemption. ``remaining``: its remaining work in seconds of one trainer; None: unknown. ``requeued``: when it was
    stopped for another job and returned to the queue; None: never.
    """

    key: str
    least: int
    most: int
    trainer: Amounts
    core: Core = Core()
    namespace: str = ""
    priority: int = 0
    submitted: float = 0.0
    started: float | None = None
    trainers: Mapping[str, int] = field(default_factory=dict)
    pending: int = 0
    running: int = 0
    first: int = 0
    held: Mapping[str, Amounts] = field(default_factory=dict)
    leaving: Mapping[str, Amounts] = field(default_factory=dict)
    waiting: Amounts = NOTHING
    changed: float | None = None
    change: int = 0
    checkpoint_age: float = 0.0
    speeds: Mapping[int, float] = field(default_factory=dict)
    attained: float = 0.0
    remaining: float | None = None
    requeued: float | None = None
    tolerates: frozenset[str] = frozenset()

    @property
    def size(self) -> int:
        """The number of its trainers, with or without a node."""
        return sum(self.trainers.values()) + self.pending

    @property
    def since(self) -> float:
        """When it last entered the queue."""
        return self.submitted if self.requeued is None else self.requeued


@dataclass(frozen=True, slots=True)
class Service:
    """Replicas that another controller manages. A policy only frees capacity for them.

    ``wanted``: the desired number of replicas. ``bound``: the number of replicas with a node, by node. ``leaving``: as
    for a job. ``history``: (time, wanted) of its recent changes, oldest first.
    """

    key: str
    need: Amounts
    wanted: int
    bound: Mapping[str, int] = field(default_factory=dict)
    leaving: Mapping[str, Amounts] = field(default_factory=dict)
    priority: int = 10
    history: Sequence[tuple[float, int]] = ()
    tolerates: frozenset[str] = frozenset()

    @property
    def missing(self) -> int:
        return max(0, self.wanted - sum(self.bound.values()))


@dataclass(frozen=True, slots=True)
class Cluster:
    """Input of a policy. ``limits``: the most that all jobs of a namespace may take; others are unlimited."""

    nodes: Sequence[Node]
    jobs: Sequence[Job] = ()
    services: Sequence[Service] = ()
    limits: Mapping[str, Amounts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Launch:
    """The nodes of the replicas that a job begins with. An empty name leaves the choice to the cluster's scheduler."""

    masters: tuple[str, ...]
    servers: tuple[str, ...]
    trainers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """Output of a policy.

    ``targets``: the trainers of every job, including those that start once freed capacity is available. ``launches``:
    jobs that begin now. ``grants``: trainers that start now, by job and node. ``victims``: trainers that stop now, by
    job and node. ``preempted``: jobs that stop whole and return to the queue, each with the key of the job or service
    that gets their amounts (empty: none in particular). ``messages``: the reasons, by job.
    """

    targets: Mapping[str, int]
    launches: Mapping[str, Launch] = field(default_factory=dict)
    grants: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    victims: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    preempted: Mapping[str, str] = field(default_factory=dict)
    messages: Mapping[str, str] = field(default_factory=dict)


class Policy(Protocol):
    """A deterministic policy: the same cluster and time give the same decision."""

    def __call__(self, cluster: Cluster, now: float) -> Decision: ...
