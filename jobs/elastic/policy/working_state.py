"""Jobs and nodes as a decision changes them. Plain records with identity. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from jobs.elastic.policy.model import Amounts, Job

# The amounts of one replica and the taints that it tolerates.
Shape = tuple[Amounts, frozenset[str]]


@dataclass(slots=True, eq=False)
class NodeState:
    """A node and its free amounts, as lists of cpu, memory and GPUs.

    ``number``: its position in the cluster, which breaks ties. ``now``: what is free now. ``soon``: what is free once
    stopping replicas are gone. ``jobs``: the jobs with trainers that stay there.
    """

    number: int
    name: str
    taints: frozenset[str]
    now: list[int]
    soon: list[int] = field(default_factory=list)
    jobs: set[JobState] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class JobState:
    """A job and its trainers.

    ``index``: its position in the cluster, which breaks ties. ``cost``: the share that one trainer is. ``useful``: the
    most trainers that are useful to it. ``recent_change``: by how many trainers it grew or shrank within the cool-down.
    ``size``: the trainers that stay, with or without a node; ``by_node``: those with one. ``target``: trainers that it
    has, gets now or is promised. ``fair``: its fair share. ``victims``: trainers that stop, by node. ``stopped_for``:
    their number by beneficiary. ``planned``: trainers that start as soon as there is capacity. ``begins``: whether all
    replicas that it begins with have a place now (True) or soon (False); None: it waits without a place.
    """

    index: int
    job: Job
    shape: Shape
    cost: float
    useful: int
    recent_change: int
    size: int
    target: int
    begins: bool | None
    by_node: dict[NodeState, int]
    fair: float = 0.0
    victims: dict[NodeState, int] = field(default_factory=dict)
    stopped_for: dict[str, int] = field(default_factory=dict)
    planned: int = 0

    @property
    def share(self) -> float:
        """The weighted dominant share of all its trainers."""
        return self.target * self.cost

    def fullest_node(self) -> NodeState:
        """Return the node on which it gives up a trainer if any node will do."""
        return max(self.by_node, key=lambda node: (self.by_node[node], node.number))
