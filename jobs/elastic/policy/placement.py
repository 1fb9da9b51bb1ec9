"""Free capacity of nodes and placement of replicas: now, and soon, once stopping replicas are gone. Pure.

This is best fit with look-ahead: a replica is placed on the node whose remainder can be filled best by the replicas
still to come; among equal nodes on the fullest. Heaps by need keep the nodes in that order and are repaired lazily, so
that no placement reads all nodes.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from jobs.elastic.policy.model import Amounts, Node
from jobs.elastic.policy.working_state import NodeState, Shape

# The GPUs, wasted cores and free cores of a node after a placement, and its number.
_Entry = tuple[int, int, int, int]
_SIZES = 3
# Free cores of this many times the largest replica can be filled without waste.
_LARGE = 6


class Tiling:
    """Cores (thousandths) that remain unused when a number of cores is filled as well as possible."""

    def __init__(self, demand: Mapping[int, int]) -> None:
        common = [cpu for cpu, _ in Counter(demand).most_common() if cpu > 0]
        largest = max(common, default=0)
        self._sizes = sorted([cpu for cpu in common if demand[cpu] > 0 and cpu * 4 >= largest][:_SIZES], reverse=True)
        self._large = _LARGE * largest
        self._known: dict[int, int] = {}

    def waste(self, cpu: int) -> int:
        """Return the unused cores of a number of cores."""
        known = self._known.get(cpu)
        if known is None:
            known = self._known[cpu] = 0 if cpu > self._large or not self._sizes else self._least_waste(cpu)
        return known

    def _least_waste(self, cpu: int) -> int:
        return min((self.waste(cpu - size) for size in self._sizes if size <= cpu), default=cpu)


class FreeCapacity:
    """The free amounts of all nodes, and the order in which they take replicas.

    While ``exact`` is set, a placement equals that of a full search. Else it may be slightly worse, but is faster.
    """

    def __init__(self, nodes: Sequence[Node], tiling: Tiling) -> None:
        self.nodes = [
            NodeState(
                number, node.name, node.taints, [a - b for a, b in zip(node.allocatable, node.taken, strict=True)]
            )
            for number, node in enumerate(nodes)
        ]
        self._by_name = {node.name: node for node in self.nodes}
        self._waste = tiling.waste
        self._heaps: dict[Shape, list[_Entry]] = {}
        self.exact = True

    def node(self, name: str) -> NodeState | None:
        """Return the node of this name, or None if the cluster has none."""
        return self._by_name.get(name)

    def occupy(self, name: str, need: Amounts, count: int, *, stays: bool = True) -> None:
        """Take amounts of replicas that exist before the decision. ``stays``: they are not stopping."""
        node = self._by_name.get(name)
        if node is not None:
            _add(node.now, need, -count)
            if not stays:
                node.soon = node.soon or [0, 0, 0]
                _add(node.soon, need, count)

    def ready(self) -> None:
        """Finish the setup, after all calls of ``occupy``."""
        for node in self.nodes:
            node.soon = (
                [free + more for free, more in zip(node.now, node.soon, strict=True)] if node.soon else [*node.now]
            )

    def place(self, shape: Shape) -> NodeState | None:
        """Take capacity of ``soon`` for one replica. Return its node, or None if it fits nowhere."""
        heap, need, nodes = self._heap(shape), shape[0], self.nodes
        cpu, memory, gpu = need
        while heap:
            entry = heap[0]
            node = nodes[entry[3]]
            free = node.soon
            if free[2] - gpu == entry[0] and free[0] - cpu == entry[2] and free[1] >= memory:
                free[0], free[1], free[2] = entry[2], free[1] - memory, entry[0]
                self._settle(heap, node, need)
                return node
            fresh = self._entry(node, need)
            if fresh is None:
                heapq.heappop(heap)
            else:
                heapq.heapreplace(heap, fresh)
        return None

    def _settle(self, heap: list[_Entry], node: NodeState, need: Amounts) -> None:
        """Move the top node of the heap, from which capacity was taken, to its new position."""
        left = self._entry(node, need)
        if left is None:
            heapq.heappop(heap)
        elif len(heap) > 2 and left < heap[1] and left < heap[2]:
            heap[0] = left  # It usually stays on top; ``heapreplace`` would sift it down to a leaf first.
        else:
            heapq.heapreplace(heap, left)
        if self.exact:
            self._update_heaps(node)

    def give_back(self, node: NodeState, need: Amounts) -> None:
        """Return amounts to ``soon``: those of a replica that will stop, or of a placement that is undone."""
        _add(node.soon, need, 1)
        self._update_heaps(node)

    def take(self, node: NodeState, need: Amounts) -> None:
        """Take amounts from ``soon``. The inverse of ``give_back``."""
        _add(node.soon, need, -1)
        self._update_heaps(node)

    def _update_heaps(self, node: NodeState) -> None:
        """Push the new position of a changed node to the heap of each need."""
        for shape, heap in self._heaps.items():
            entry = self._entry(node, shape[0])
            if entry is not None and node.taints <= shape[1]:
                heapq.heappush(heap, entry)

    def begin(self, placed: Iterable[tuple[NodeState, Amounts]]) -> bool:
        """Take the amounts of placed replicas from ``now``, all of them or none. Return whether they fit."""
        pairs = list(placed)
        for node, need in pairs:
            _add(node.now, need, -1)
        if all(min(node.now) >= 0 for node, _ in pairs):
            return True
        for node, need in pairs:
            _add(node.now, need, 1)
        return False

    def _heap(self, shape: Shape) -> list[_Entry]:
        heap = self._heaps.get(shape)
        if heap is None:
            nodes = (node for node in self.nodes if node.taints <= shape[1])
            heap = [entry for node in nodes if (entry := self._entry(node, shape[0])) is not None]
            heapq.heapify(heap)
            self._heaps[shape] = heap
        return heap

    def _entry(self, node: NodeState, need: Amounts) -> _Entry | None:
        free = node.soon
        cpu, gpu = free[0] - need[0], free[2] - need[2]
        if cpu < 0 or gpu < 0 or free[1] < need[1]:
            return None
        return gpu, self._waste(cpu), cpu, node.number


def begin_one(node: NodeState, need: Amounts) -> bool:
    """Take the amounts of one placed replica from ``now``. Return whether they fit."""
    free = node.now
    if free[0] < need[0] or free[1] < need[1] or free[2] < need[2]:
        return False
    free[0] -= need[0]
    free[1] -= need[1]
    free[2] -= need[2]
    return True


def slots(node: NodeState, freed: Sequence[int], need: Amounts) -> int:
    """Return how many replicas of this need would fit on a node of ``soon`` with ``freed`` added."""
    free = node.soon
    return min((free[i] + freed[i]) // need[i] for i in range(3) if need[i]) if any(need) else 1


def _add(to: list[int], amounts: Sequence[int], times: int) -> None:
    to[0] += amounts[0] * times
    to[1] += amounts[1] * times
    to[2] += amounts[2] * times
