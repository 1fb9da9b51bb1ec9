"""Free capacity of nodes and placement of replicas: now, and soon, once stopping replicas are gone. Pure.

A replica is placed on the node whose remainder can be filled best by the replicas still to come; among equal nodes on
the fullest. Heaps by need keep the nodes in that order and are repaired lazily, so that no placement reads all nodes.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from jobs.elastic.policy.model import Amounts, Node

Shape = tuple[Amounts, frozenset[str]]
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
        if cpu > self._large or not self._sizes:
            return 0
        known = self._known.get(cpu)
        if known is None:
            known = min((self.waste(cpu - size) for size in self._sizes if size <= cpu), default=cpu)
            self._known[cpu] = known
        return known


class FreeCapacity:
    """Free cpu, memory and GPUs of each node, by its index: ``now``, and ``soon`` once stopping replicas are gone.

    While ``exact`` is set, a placement equals that of a full search. Else it may be slightly worse, but is faster.
    """

    def __init__(self, nodes: Sequence[Node], tiling: Tiling) -> None:
        self.number = {node.name: number for number, node in enumerate(nodes)}
        self.names = [node.name for node in nodes]
        self.now = [[a - b for a, b in zip(node.allocatable, node.taken, strict=True)] for node in nodes]
        self.soon: list[list[int]] = []
        self._taints = [node.taints for node in nodes]
        self._tiling = tiling
        self._heaps: dict[Shape, list[_Entry]] = {}
        self.exact = True

    def occupy(self, name: str, need: Amounts, count: int, *, stays: bool = True) -> None:
        """Take amounts of replicas that exist before the decision. ``stays``: they are not stopping."""
        number = self.number.get(name)
        if number is not None:
            _add(self.now[number], need, -count)
            if not stays:
                while len(self.soon) < len(self.now):
                    self.soon.append([0, 0, 0])
                _add(self.soon[number], need, count)

    def ready(self) -> None:
        """Finish the setup, after all calls of ``occupy``."""
        coming = self.soon or [[0, 0, 0]] * len(self.now)
        self.soon = [
            [a + b for a, b in zip(free, more, strict=True)] for free, more in zip(self.now, coming, strict=True)
        ]

    def tolerable(self, number: int, shape: Shape) -> bool:
        return self._taints[number] <= shape[1]

    def place(self, shape: Shape) -> int:
        """Take capacity of ``soon`` for one replica. Return the index of its node, or -1 if it fits nowhere."""
        heap, need = self._heap(shape), shape[0]
        cpu, memory, gpu = need
        while heap:
            entry = heap[0]
            free = self.soon[entry[3]]
            if free[2] - gpu == entry[0] and free[0] - cpu == entry[2] and free[1] >= memory:
                free[0], free[1], free[2] = entry[2], free[1] - memory, entry[0]
                self._settle(heap, entry[3], need)
                return entry[3]
            fresh = self._entry(entry[3], need)
            if fresh is None:
                heapq.heappop(heap)
            else:
                heapq.heapreplace(heap, fresh)
        return -1

    def _settle(self, heap: list[_Entry], number: int, need: Amounts) -> None:
        """Move the top node of the heap, from which capacity was taken, to its new position."""
        left = self._entry(number, need)
        if left is None:
            heapq.heappop(heap)
        elif len(heap) > 2 and left < heap[1] and left < heap[2]:
            heap[0] = left  # It usually stays on top; ``heapreplace`` would sift it down to a leaf first.
        else:
            heapq.heapreplace(heap, left)
        if self.exact:
            self._update_heaps(number)

    def give_back(self, number: int, need: Amounts) -> None:
        """Return amounts to ``soon``: those of a replica that will stop, or of a placement that is undone."""
        _add(self.soon[number], need, 1)
        self._update_heaps(number)

    def take(self, number: int, need: Amounts) -> None:
        """Take amounts from ``soon``. The inverse of ``give_back``."""
        _add(self.soon[number], need, -1)
        self._update_heaps(number)

    def _update_heaps(self, number: int) -> None:
        """Push the new position of a changed node to the heap of each need."""
        for shape, heap in self._heaps.items():
            entry = self._entry(number, shape[0])
            if entry is not None and self.tolerable(number, shape):
                heapq.heappush(heap, entry)

    def begin(self, placed: Iterable[tuple[int, Amounts]]) -> bool:
        """Take the amounts of placed replicas from ``now``, all of them or none. Return whether they fit."""
        pairs = list(placed)
        for number, need in pairs:
            _add(self.now[number], need, -1)
        if all(min(self.now[number]) >= 0 for number, _ in pairs):
            return True
        for number, need in pairs:
            _add(self.now[number], need, 1)
        return False

    def begin_one(self, number: int, need: Amounts) -> bool:
        free = self.now[number]
        if free[0] < need[0] or free[1] < need[1] or free[2] < need[2]:
            return False
        _add(free, need, -1)
        return True

    def slots(self, number: int, freed: Sequence[int], need: Amounts) -> int:
        """Return how many replicas of this need would fit on a node of ``soon`` with ``freed`` added."""
        free = self.soon[number]
        return min((free[i] + freed[i]) // need[i] for i in range(3) if need[i]) if any(need) else 1

    def _heap(self, shape: Shape) -> list[_Entry]:
        heap = self._heaps.get(shape)
        if heap is None:
            numbers = (number for number in range(len(self.soon)) if self.tolerable(number, shape))
            heap = [entry for number in numbers if (entry := self._entry(number, shape[0])) is not None]
            heapq.heapify(heap)
            self._heaps[shape] = heap
        return heap

    def _entry(self, number: int, need: Amounts) -> _Entry | None:
        free = self.soon[number]
        cpu, gpu = free[0] - need[0], free[2] - need[2]
        if cpu < 0 or gpu < 0 or free[1] < need[1]:
            return None
        return gpu, self._tiling.waste(cpu), cpu, number


def _add(to: list[int], amounts: Sequence[int], times: int) -> None:
    to[0] += amounts[0] * times
    to[1] += amounts[1] * times
    to[2] += amounts[2] * times
