"""Scheduler and life cycle of simulated pods. Pure.

Pods without a node are placed like by Kubernetes' scheduler: in order of arrival, on the node with the most free cores,
and again whenever capacity is freed.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Protocol

from jobs.elastic.policy.model import Amounts, Node
from jobs.elastic.simulation.event_loop import EventLoop
from jobs.elastic.simulation.pods import Pod, PodState, SimulatedNode
from jobs.elastic.simulation.workload import Timing


class PodEvents(Protocol):
    """Receiver of the events of pods. The state of the pod has changed before each call."""

    def pod_queued(self, pod: Pod) -> None: ...

    def pod_runs(self, pod: Pod) -> None: ...

    def pod_stops(self, pod: Pod, *, ran: bool) -> None: ...

    def pod_removed(self, pod: Pod) -> None: ...


class PodScheduler:
    """The nodes, and the pods on them or waiting for one.

    Invariant: the free amounts of a node are its allocatable ones minus those of all pods that are starting, running or
    stopping there. They are never negative, unless the node's other pods take more than there is.
    """

    def __init__(
        self, nodes: Sequence[Node], loop: EventLoop, timing: Timing, chance: random.Random, events: PodEvents
    ) -> None:
        self._loop, self._timing, self._chance, self._events = loop, timing, chance, events
        self._nodes = [SimulatedNode(node) for node in nodes]
        self._by_name = {node.name: node for node in self._nodes}
        self._pending: deque[Pod] = deque()
        self._is_due = False

    def has_node(self, name: str) -> bool:
        return name in self._by_name

    def run_at_once(self, pod: Pod) -> None:
        """Run a pod that exists at the beginning. It waits if it fits nowhere."""
        node = self._node_for(pod.need)
        if node is None:
            self._pending.append(pod)
        else:
            self._bind(pod, node)
            self._run(pod)

    def create(self, pod: Pod, called: float, name: str = "") -> None:
        """Create a pod by a call at ``called``, on a node chosen by name or, if it does not fit there, on any."""
        node = self._by_name.get(name)
        if node is not None and node.fits(pod.need):
            self._bind(pod, node)
            self._start(pod, called)
        else:
            self._loop.at(called, partial(self._queue, pod))

    def stop(self, pod: Pod, called: float) -> None:
        """Mark a pod as stopping. The call that stops it is made at ``called``. Nothing happens if it stops already."""
        was = pod.state
        if was is PodState.PENDING:
            self._remove(pod)
        elif was in (PodState.STARTING, PodState.RUNNING):
            pod.state = PodState.STOPPING
            pod.owner.unbind(pod)
            self._events.pod_stops(pod, ran=was is PodState.RUNNING)
            self._loop.at(called + self._chance.uniform(*self._timing.stop), partial(self._remove, pod))

    def _queue(self, pod: Pod) -> None:
        if pod.state is PodState.PENDING:
            self._pending.append(pod)
            self._schedule_soon()
            self._events.pod_queued(pod)

    def _schedule_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.at(self._loop.now, self._schedule)

    def _schedule(self) -> None:
        self._is_due = False
        unplaceable: set[Amounts] = set()
        waiting: deque[Pod] = deque()
        for pod in self._pending:
            if pod.state is not PodState.PENDING:
                continue
            node = None if pod.need in unplaceable else self._node_for(pod.need)
            if node is None:
                unplaceable.add(pod.need)
                waiting.append(pod)
            else:
                self._bind(pod, node)
                self._start(pod, self._loop.now)
        self._pending = waiting

    def _node_for(self, need: Amounts) -> SimulatedNode | None:
        """Return the node with the most free cores on which a pod fits, the first of several."""
        return max((node for node in self._nodes if node.fits(need)), key=lambda node: node.free[0], default=None)

    def _bind(self, pod: Pod, node: SimulatedNode) -> None:
        pod.node, pod.state = node, PodState.STARTING
        node.take(pod.need)
        pod.owner.bind(pod)

    def _start(self, pod: Pod, begun: float) -> None:
        self._loop.at(begun + self._chance.uniform(*self._timing.start), partial(self._run, pod))

    def _run(self, pod: Pod) -> None:
        if pod.state is PodState.STARTING:
            pod.state, pod.has_run = PodState.RUNNING, True
            self._events.pod_runs(pod)

    def _remove(self, pod: Pod) -> None:
        pod.state = PodState.GONE
        pod.owner.pods.pop(pod, None)
        if pod.node is None:
            return
        pod.owner.remove(pod)
        pod.node.give_back(pod.need)
        if self._pending:
            self._schedule_soon()
        self._events.pod_removed(pod)
