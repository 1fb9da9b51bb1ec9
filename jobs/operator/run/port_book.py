"""Port blocks of jobs on their nodes' network, from the jobs' annotations and from assignments not yet written."""

from __future__ import annotations

import threading

from jobs.operator.client.cache import Cache
from jobs.operator.decide.host_ports import HostPorts
from jobs.operator.model import names


class PortBook:
    """Thread-safe assignment of port blocks. Keys are ``namespace/name``."""

    def __init__(self, cache: Cache, ports: HostPorts | None = None) -> None:
        self._cache, self._ports = cache, ports or HostPorts()
        self._lock = threading.Lock()
        self._given: dict[str, int] = {}
        self._last: int | None = None

    def block(self, key: str) -> int | None:
        """Return a free block for a job without one, the same until ``release``; None if all are taken."""
        with self._lock:
            if key not in self._given:
                free = self._ports.next_block(self._taken(), self._last)
                if free is None:
                    return None
                self._given[key] = self._last = free
            return self._given[key]

    def release(self, key: str) -> None:
        """Release the block of a deleted job."""
        with self._lock:
            self._given.pop(key, None)

    def _taken(self) -> set[int]:
        values = (
            (job["metadata"].get("annotations") or {}).get(names.HOST_PORT_ANNOTATION, "")
            for job in self._cache.all(names.KIND)
        )
        return {int(port) for port in values if port.isdecimal()} | set(self._given.values())
