"""Nodes and pods of the cluster, as input of the controller.

Requires the rights to list and watch them (``deploy/kubernetes/portal-rights.yaml``).
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from jobs.kubernetes_objects.scheduling import NodeInfo, PodInfo, condensed
from jobs.operator.client.api import FORBIDDEN, KubeApi, Refusal
from jobs.operator.client.cache import Cache
from jobs.operator.client.metrics import Metrics
from jobs.operator.client.reflector import Reflector
from jobs.operator.client.resources import ALL_PODS, NODES


@dataclass(frozen=True)
class ClusterState:
    """Nodes and pods at one time, sorted by name."""

    nodes: list[NodeInfo]
    pods: list[PodInfo]


class ClusterWatch:
    """Reader of all nodes and pods: once with ``look``, or continuously with ``follow``."""

    def __init__(self, api: KubeApi) -> None:
        self._cache = Cache(trim=condensed)
        self._reflectors = [
            Reflector(api, resource, self._cache, Metrics(), time.monotonic) for resource in (NODES, ALL_PODS)
        ]
        self._threads: list[threading.Thread] = []
        self._ended = threading.Event()

    def look(self) -> ClusterState | None:
        """List nodes and pods once. Return None if the API server refuses or does not answer."""
        for each in self._reflectors:
            try:
                each.relist()
            except Refusal as refusal:
                each.refusal = refusal
                return None
        return self._state()

    def follow(self) -> ClusterState | None:
        """Return the state as of the last events, and start watching on the first call.

        Returns None until the first lists have arrived and while the API server does not answer. Does not block.
        """
        if not self._threads:
            # Daemon threads, because a watch that hangs must not prevent the process from ending.
            reflections = [(one, self._ended) for one in self._reflectors]
            self._threads = [threading.Thread(target=_reflect, args=pair, daemon=True) for pair in reflections]
            for thread in self._threads:
                thread.start()
        there = all(one.synced and not one.is_cut_off for one in self._reflectors)
        return self._state() if there else None

    def end(self) -> None:
        """Stop watching as soon as the present watches have ended. Does not wait for that."""
        self._ended.set()

    @property
    def forbidden(self) -> bool:
        """Whether the API server has refused to list nodes or pods as forbidden."""
        refusals = [one.refusal for one in self._reflectors]
        return any(refusal is not None and refusal.status == FORBIDDEN for refusal in refusals)

    def _state(self) -> ClusterState:
        nodes = [item["seen"] for item in self._cache.all(NODES.kind)]
        pods = [item["seen"] for item in self._cache.all(ALL_PODS.kind)]
        return ClusterState(
            sorted(nodes, key=lambda node: node.name), sorted(pods, key=lambda pod: (pod.namespace, pod.name))
        )


def _reflect(reflector: Reflector, ended: threading.Event) -> None:
    while not ended.is_set():
        ended.wait(reflector.round())
