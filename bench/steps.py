"""R1, R2, R5, R10: a synchronous step of trainers and two parameter servers, each a process of its own.

R1   push gradients (float32, or bf16 on the wire), SGD, pull over TCP loopback, against gloo's all_reduce and SGD with
     as many workers
R2   the same with the memory that trainers and servers of one host share
R5   records a second of two trainers over one, where the model's own work dominates
R10  parameters after the same batches of the digits in two runs over TCP with Adam, bit for bit

R1n (links that network namespaces shape) and R1c (CPU seconds by GB) have no measurement yet: they are MISSED. R5 has
no data, master or tasks: its row says so.

In R1 and R2 the gradients lie where each side takes them from without a copy: gloo reduces the tensor that the model
has written, ours are in the arrays of ``Params.gradients``. To write them there is not part of the step. Our parameters
are ``mapped``: on one host the trainer sees them where the server has updated them.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from bench import peers
from bench.processes import Group, answer, make_steps, one_thread, ready, running, seconds_of_a_step
from bench.report import Row, missed
from bench.scale import scale

MILLION = 10**6
SIZES = scale((1 * MILLION, 10 * MILLION, 50 * MILLION), (1 * MILLION,))
TRAINERS = scale((2, 4), (2,))
SERVERS = 2
GOALS = {
    "socket": ("R1", "TCP, float32", 0.9),
    "bf16": ("R1", "TCP, bf16", 1.3),
    "shared": ("R2", "same host, float32", 5.0),
}
PEER = Path(__file__).with_name("gloo_peer.py")

EXACT_STEPS = scale(200, 10)
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
        peer = peers.python_with("torch")
        if peer:
            groups["gloo"] = stack.enter_context(_gloo(peer, elements, trainers))
        seconds = seconds_of_a_step(groups, steps=max(1, 20 * MILLION // elements))
    return [_against(wire, elements, trainers, seconds) for wire in GOALS]


def _against(wire: str, elements: int, trainers: int, seconds: Mapping[str, float]) -> Row:
    name, how, goal = GOALS[wire]
    case = f"{how}, {trainers} trainers, {elements // MILLION}M: steps a second"
    value = 1 / seconds[wire]
    if "gloo" not in seconds:
        return missed(name, case, f">= {goal:g} x gloo", peers.missing("torch"), value)
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
    case = "steps of 2 trainers over 1, compute-bound, shared memory"
    note = "without data, master and tasks: not yet what the row asks for"
    return Row("R5", case, ours, ">= 1.8", False, bare, round(ours / bare, 2), note=note)


def _exact(trainers: int) -> Row:
    """R10. The digest is of the bytes of all parameters, after so many steps on batches of real data."""
    digests = set()
    for _run in range(2):
        with _ours(0, trainers, "digits") as group:
            digests |= {digest for _seconds, digest in make_steps(group, EXACT_STEPS)}
    equal = len(digests) == 1
    return Row(
        "R10",
        f"{trainers} trainers, Adam, TCP, {EXACT_STEPS} batches each: runs whose bits differ",
        0 if equal else 1,
        "0",
        equal,
    )


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
