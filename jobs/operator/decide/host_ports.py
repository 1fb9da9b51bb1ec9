"""Ports of jobs on their nodes' own network: blocks of twenty in a row, no two jobs the same. Pure.

A job's block is told by the annotation ``host-port`` of the job, as in paddle-operator up to 0.3.2: whoever starts anew
reads the blocks from there.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection
from dataclasses import dataclass

from jobs.operator.model import names

_FIRST, _LAST = 36000, 56000  # for pods with an address of their own, as in paddle-operator


@dataclass(frozen=True)
class HostPorts:
    """The range of ports to give away, ``last`` not among them."""

    first: int = 35000
    last: int = 65000

    def next_block(self, taken: Collection[int], after: int | None = None) -> int | None:
        """First port of the next free block after the last that was given; None when all are taken."""
        blocks = (self.last - self.first) // names.PORTS
        begin = 0 if after is None else (after - self.first) // names.PORTS
        for step in range(1, blocks + 1):
            port = self.first + (begin + step) % blocks * names.PORTS
            if port not in taken:
                return port
        return None


def pod_port(uid: str) -> int:
    """First port of a job whose pods have addresses of their own: any will do, but always the same one."""
    blocks = (_LAST - _FIRST) // names.PORTS
    return _FIRST + zlib.crc32(uid.encode()) % blocks * names.PORTS
