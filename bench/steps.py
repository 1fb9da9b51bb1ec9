"""R1, R2, R5, R10: a synchronous step of trainers and two parameter servers, each a process of its own.

R1   push gradients, SGD, pull over TCP loopback, against gloo's all_reduce and SGD with as many workers
R2   the same with the memory that trainers and servers of one host share
R5   records a second of two trainers over one, where the model's own work dominates
R10  parameters after the same steps in two runs, bit for bit

In R1 and R2 the gradients lie where each side takes them from without a copy: gloo reduces the tensor that the model
has written, ours are in the arrays of ``Params.gradients``. To write them there is not part of the step. Our parameters
are ``mapped``: on one host the trainer sees them where the server has updated them.

The peer's Python is named by REGATTA_BENCH_TORCH (an interpreter with torch); without it our own is tried.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from bench.processes import Group, answer, make_steps, one_thread, ready, running, seconds_of_a_step
from bench.report import Row

MILLION = 10**6
SIZES = (1 * MILLION, 10 * MILLION, 50 * MILLION)
TRAINERS = (2, 4)
SERVERS = 2
GOALS = {"socket": ("R1", "TCP", 1.3), "shared": ("R2", "same host", 5.0)}
PEER = Path(__file__).with_name("gloo_peer.py")
PEER_MISSING = "peer missing: name a Python with torch in REGATTA_BENCH_TORCH"

_WORK = 60  # matrix products in a step of R5
_WORK_ELEMENTS = 100_000


def measure() -> list[Row]:
    rows = [row for trainers in TRAINERS for size in SIZES for row in _against_gloo(size, trainers)]
    return [*rows, _scaling(), *(_exact(trainers) for trainers in (1, 2, 4))]


# --- Rows ------------------------------------------------------------------------------------------------------------
def _against_gloo(elements: int, trainers: int) -> list[Row]:
    """R1 and R2 of one cell, in alternating rounds with the peer."""
    with ExitStack() as stack:
        groups = {wire: stack.enter_context(_ours(elements, trainers, wire)) for wire in GOALS}
        peer = _peer_python()
        if peer:
            groups["gloo"] = stack.enter_context(_gloo(peer, elements, trainers))
        seconds = seconds_of_a_step(groups, steps=max(1, 20 * MILLION // elements))
    return [_against(wire, elements, trainers, seconds) for wire in GOALS]


def _against(wire: str, elements: int, trainers: int, seconds: Mapping[str, float]) -> Row:
    name, how, goal = GOALS[wire]
    case = f"{how}, {trainers} trainers, {elements // MILLION}M float32: steps a second"
    value = 1 / seconds[wire]
    if "gloo" not in seconds:
        return Row(name, f"{case} ({PEER_MISSING})", round(value, 2), f">= {goal:g} x gloo", met=False)
    ratio = seconds["gloo"] / seconds[wire]
    peer = round(1 / seconds["gloo"], 2)
    return Row(name, case, round(value, 2), f">= {goal:g} x gloo", ratio >= goal, peer, round(ratio, 2))


def _scaling() -> Row:
    """R5. Each trainer's step is on as many records, so the ratio of the times says it all.

    The peer is what the machine has to give: two processes over one that only work, without the runtime.
    """
    with ExitStack() as stack:
        groups = {
            f"{kind} {count}": stack.enter_context(make(count))
            for count in (1, 2)
            for kind, make in (("ours", _computing), ("bare", _bare))
        }
        seconds = seconds_of_a_step(groups, steps=20)
    ours, bare = (round(2 * seconds[f"{kind} 1"] / seconds[f"{kind} 2"], 2) for kind in ("ours", "bare"))
    case = "records a second, 2 trainers over 1, compute-bound"
    return Row("R5", case, ours, ">= 1.8", ours >= 1.8, bare, round(ours / bare, 2))


def _exact(trainers: int) -> Row:
    """R10. The digest is of the bytes of all parameters, after ten steps."""
    digests = set()
    for _run in range(2):
        with _ours(MILLION, trainers, "shared") as group:
            digests |= {digest for _seconds, digest in make_steps(group, 10)}
    equal = len(digests) == 1
    return Row("R10", f"{trainers} trainers: runs whose bits differ from the first", 0 if equal else 1, "0", equal)


# --- Processes -------------------------------------------------------------------------------------------------------
@contextmanager
def _ours(elements: int, trainers: int, wire: str, work: int = 0) -> Iterator[Group]:
    command = [sys.executable, "-m", "bench.step_process"]
    # Hashes of bytes are salted by default; the digests of two runs are compared.
    environment = {**one_thread(), "PYTHONHASHSEED": "0"}
    with ExitStack() as stack:
        servers = [
            stack.enter_context(running([*command, "server", str(index), str(SERVERS), str(trainers)], environment))
            for index in range(SERVERS)
        ]
        addresses = [answer(server) for server in servers]
        tail = [str(elements), wire, str(work), *addresses]
        yield ready(
            stack.enter_context(running([*command, "trainer", str(index), *tail], environment))
            for index in range(trainers)
        )


def _computing(trainers: int) -> AbstractContextManager[Group]:
    return _ours(_WORK_ELEMENTS, trainers, "shared", _WORK)


@contextmanager
def _bare(workers: int) -> Iterator[Group]:
    """Processes that do the work of a step and nothing else."""
    command = [sys.executable, "-m", "bench.step_process", "bare", str(_WORK)]
    with ExitStack() as stack:
        yield ready(stack.enter_context(running(command, one_thread())) for _ in range(workers))


@contextmanager
def _gloo(python: str, elements: int, workers: int) -> Iterator[Group]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    shared = {"WORLD_SIZE": str(workers), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo"}
    with ExitStack() as stack:
        yield ready(
            stack.enter_context(
                running([python, str(PEER), str(elements)], {**os.environ, **shared, "RANK": str(rank)})
            )
            for rank in range(workers)
        )


def _peer_python() -> str:
    """An interpreter that has torch; empty where there is none."""
    python = os.environ.get("REGATTA_BENCH_TORCH", sys.executable)
    found = subprocess.run([python, "-c", "import torch.distributed"], capture_output=True, check=False)
    return python if found.returncode == 0 else ""
