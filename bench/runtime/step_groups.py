"""Processes of one synchronous step, ours and the peer's, each in its place.

Trainers and parameter servers of ``step_process.py``, or workers of PyTorch's gloo (``gloo_peer.py``) in the peers' own
Python. A ``Place`` is an address and the command prefix that starts a process there: this host, or a network namespace
(``namespaces.py``).
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import peers
from bench.environment.processes import Group, answer, one_thread, ready, running
from bench.environment.servers import free_port
from runtime import contract

GLOO = Path(__file__).with_name("gloo_peer.py")
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Place:
    """Where a process runs. ``enter`` is the command prefix. ``interface`` has the address."""

    address: str = "127.0.0.1"
    enter: tuple[str, ...] = ()
    interface: str = "lo"


HERE = Place()


@dataclass(frozen=True)
class Team:
    """Processes of one side. ``makers`` make steps on command; ``everybody`` includes their servers."""

    makers: Group
    everybody: Group

    def cpu_seconds(self) -> float:
        """Return the CPU time of all its processes since their start."""
        return sum(map(_cpu_seconds, (process.pid for process in self.everybody)))


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


@contextmanager
def ours(
    elements: int, wire: str, trainers: Sequence[Place], servers: Sequence[Place] = (HERE, HERE)
) -> Iterator[Team]:
    """Provide a process in each place. ``wire`` is one of ``bench.runtime.step_process``."""
    command = [sys.executable, "-m", "bench.runtime.step_process"]
    # Hashes of bytes are salted by default; the digests of two runs are compared.
    environment = {**one_thread(), "PYTHONHASHSEED": "0"}
    with ExitStack() as stack:
        serving = [
            stack.enter_context(
                running(
                    [*place.enter, *command, "server", str(index), str(len(servers)), str(len(trainers))],
                    {**environment, contract.ADDRESS: place.address},
                )
            )
            for index, place in enumerate(servers)
        ]
        tail = [str(elements), wire, *map(answer, serving)]
        makers = ready(
            stack.enter_context(running([*place.enter, *command, "trainer", str(index), *tail], environment))
            for index, place in enumerate(trainers)
        )
        yield Team(makers, [*serving, *makers])


@contextmanager
def gloo(python: str, elements: int, workers: Sequence[Place]) -> Iterator[Team]:
    """Provide a worker in each place; ``python`` is an interpreter that has PyTorch."""
    first = workers[0]
    # In a separate network namespace every port is free.
    port = random.randrange(20_000, 30_000) if first.enter else free_port()
    shared = {"WORLD_SIZE": str(len(workers)), "MASTER_ADDR": first.address, "MASTER_PORT": str(port)}
    with ExitStack() as stack:
        # They become ready only when all are started.
        makers = ready(
            [
                stack.enter_context(
                    running(
                        [*place.enter, python, peers.NOT_BESIDE, str(GLOO), str(elements)],
                        {**os.environ, **shared, "RANK": str(rank), "GLOO_SOCKET_IFNAME": place.interface},
                    )
                )
                for rank, place in enumerate(workers)
            ]
        )
        yield Team(makers, makers)
