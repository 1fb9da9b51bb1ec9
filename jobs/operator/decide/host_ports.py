"""Ports of jobs on their nodes' network: blocks of twenty consecutive ports, a separate block for each job. Pure.

The annotation ``host-port`` of a job stores its block, as in paddle-operator up to 0.3.2. A restarted controller reads
the blocks from the annotations.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection
from dataclasses import dataclass

from jobs.operator.model import names

_FIRST, _LAST = 36000, 56000  # for pods with an address of their own, as in paddle-operator


@dataclass(frozen=True)
class HostPorts:
    """The range of ports to assign, without ``last``."""

    first: int = 35000
    last: int = 65000

    def next_block(self, taken: Collection[int], after: int | None = None) -> int | None:
        """Return the first port of the next free block after ``after``; None if all are taken."""
        blocks = (self.last - self.first) // names.PORTS
        begin = 0 if after is None else (after - self.first) // names.PORTS
        for step in range(1, blocks + 1):
            port = self.first + (begin + step) % blocks * names.PORTS
            if port not in taken:
                return port
        return None


def pod_port(uid: str) -> int:
    """Return the first port for a job whose pods have their own addresses: any port, but always the same."""
    blocks = (_LAST - _FIRST) // names.PORTS
    return _FIRST + zlib.crc32(uid.encode()) % blocks * names.PORTS
