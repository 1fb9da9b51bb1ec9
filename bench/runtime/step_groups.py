"""The processes of one synchronous step, ours and the peer's, each where it is put.

Trainers and parameter servers of ``step_process.py``, or workers of PyTorch's gloo (``gloo_peer.py``) in the
peers' own Python. A ``Place`` is an address and the command by which a process gets there: this host as it is, or a
network namespace (``namespaces.py``).
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
    """``enter``: the words before a command that is run there. ``interface`` has the address."""

    address: str = "127.0.0.1"
    enter: tuple[str, ...] = ()
    interface: str = "lo"


HERE = Place()


@dataclass(frozen=True)
class Team:
    """``makers`` are told to make steps; ``everybody`` are they and their servers."""

    makers: Group
    everybody: Group

    def cpu_seconds(self) -> float:
        """CPU time of all its processes since they were started."""
        return sum(map(_cpu_seconds, (process.pid for process in self.everybody)))


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


@contextmanager
def ours(
    elements: int, wire: str, trainers: Sequence[Place], servers: Sequence[Place] = (HERE, HERE)
) -> Iterator[Team]:
    """A process in each place. ``wire`` is one that ``bench.runtime.step_process`` has."""
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
    """A worker in each place; ``python`` is an interpreter that has PyTorch."""
    first = workers[0]
    # In a namespace of its own any port is free.
    port = random.randrange(20_000, 30_000) if first.enter else free_port()
    shared = {"WORLD_SIZE": str(len(workers)), "MASTER_ADDR": first.address, "MASTER_PORT": str(port)}
    with ExitStack() as stack:
        # They are ready only when all are there.
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
