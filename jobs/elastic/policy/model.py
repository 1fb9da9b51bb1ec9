"""What a policy looks at and what it decides. Plain values, no behaviour but sums.

Amounts are whole numbers: thousandths of a core, megabytes (10**6 bytes), GPUs. Times are seconds on one clock.
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
# More than there is of anything.
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
    """``taken``: by pods that are of no job and no service here. Whoever does not tolerate all taints stays away."""

    name: str
    allocatable: Amounts
    taints: frozenset[str] = frozenset()
    taken: Amounts = NOTHING


@dataclass(frozen=True, slots=True)
class Core:
    """The replicas of a job whose number does not change while it runs: its master and its parameter servers.

    ``trainers_per_server``: the servers are sized at launch for the trainers that the job can expect; else there are
    ``servers`` of them.
    """

    master: Amounts = NOTHING
    server: Amounts = NOTHING
    servers: int = 0
    trainers_per_server: int | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A job that waits (``started`` is None) or runs.

    ``least`` and ``most``: bounds of its trainers. ``trainers``: how many it has, by node, those that start included;
    ``pending``: how many were made and have no node. ``running``: those that train. ``first``: how many it was
    submitted with. ``held``: what its other replicas take, by node. ``leaving``: what its replicas that stop still
    take, by node. ``waiting``: what its replicas without a node ask for.
    ``changed``: when its number of trainers changed last, ``change`` by how many. ``speeds``: records per second that
    were measured, by number of trainers. ``attained``: trainer-seconds that it has had so far, those before it was
    called back included. ``remaining``: its work that is left, in seconds of one trainer; None: nobody knows.
    ``requeued``: when it was stopped for another job and went back to the queue; None: it never was.
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
        """Trainers that it has or was given."""
        return sum(self.trainers.values()) + self.pending

    @property
    def since(self) -> float:
        """When it entered the queue, the last time."""
        return self.submitted if self.requeued is None else self.requeued


@dataclass(frozen=True, slots=True)
class Service:
    """Replicas that are not ours and are looked after by others: here only room is made for them.

    ``wanted``: how many there should be; ``bound``: how many have a node, by node. ``leaving``: as of a job.
    ``history``: (moment, wanted) of its recent changes, oldest first.
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
    """``limits``: what all jobs of a namespace together may take; one that is not named has no limit."""

    nodes: Sequence[Node]
    jobs: Sequence[Job] = ()
    services: Sequence[Service] = ()
    limits: Mapping[str, Amounts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Launch:
    """What a job begins with, each with its node; an empty name leaves the node to the cluster's scheduler."""

    masters: tuple[str, ...]
    servers: tuple[str, ...]
    trainers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """``targets``: trainers of every job, those that come as soon as room that is being made is free included.
    ``launches``: jobs that begin now. ``grants``: new trainers of now, by job and node. ``victims``: trainers that stop
    now, by job and node. ``preempted``: jobs that stop whole and go back to the queue, each with the key of the job or
    service that gets what they held (empty: of nobody in particular). ``messages``: why, by job."""

    targets: Mapping[str, int]
    launches: Mapping[str, Launch] = field(default_factory=dict)
    grants: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    victims: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    preempted: Mapping[str, str] = field(default_factory=dict)
    messages: Mapping[str, str] = field(default_factory=dict)


class Policy(Protocol):
    """The same cluster and the same moment give the same decision."""

    def __call__(self, cluster: Cluster, now: float) -> Decision: ...
