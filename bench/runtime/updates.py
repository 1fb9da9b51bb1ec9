"""R3: the update of the parameters on a server, one thread, compared with PyTorch's fused optimisers.

The parameters are in blocks of 1 MiB, as in a shard. Every round updates all of them a few times, with NumPy, with the
accelerator and with the peer in turns. Both kinds of update are what ``optimisers.run`` calls, which a
shard calls for each block; the accelerator is measured through ``optimisers.run`` itself.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench import peers
from bench.environment.servers import wait_until
from bench.report import Row, missed
from bench.scale import scale
from runtime.parameters import optimisers
from runtime.parameters.kernels import jit, numpy_kernels
from runtime.parameters.optimisers import SGD, Adam, Momentum, Optimiser

Array = NDArray[Any]
ROUNDS = scale(7, 1)
REPEAT = 3
MEGABYTES = scale((64, 256), (4,))
BLOCK_ELEMENTS = 1 << 18
RULES: Sequence[Optimiser] = (SGD(1e-3), Momentum(1e-3, 0.9), Adam(1e-3))
# Relative to the peer's elements per second, by rule: with NumPy alone, and with the accelerator for every rule.
NUMPY_GOALS: Mapping[str, float] = {"SGD": 0.6, "Momentum": 0.7, "Adam": 0.35}
ACCELERATOR_GOAL = 0.9
PEER = Path(__file__).with_name("fused_peer.py")

Update = Callable[[str, Sequence[Array], Sequence[float]], object]
TimePeer = Callable[[str, int], float]


def measure() -> list[Row]:
    with ExitStack() as stack:
        peer = peers.python_with("torch")
        time_peer = stack.enter_context(_peer(peer)) if peer else None
        return [row for size in MEGABYTES for rule in RULES for row in _rows(rule, size, time_peer)]


def _rows(rule: Optimiser, megabytes: int, time_peer: TimePeer | None) -> Iterator[Row]:
    """Yield a row for each of our ways to update."""
    name, elements = type(rule).__name__, (megabytes << 20) // 4
    blocks = _blocks(rule, elements)
    ways: dict[str, Update] = {"NumPy": numpy_kernels.run}
    goals = {"NumPy": NUMPY_GOALS[name], "accelerator": ACCELERATOR_GOAL}
    if jit.available():
        load = partial(jit.load, name, np.dtype("<f4"), rule.slots)
        jit.begin((name, "<f4"), jit.WORTH_ELEMENTS, load)
        # It is compiled beside the updates; until then NumPy is used.
        ready = partial(jit.run, name, blocks[0], rule.numbers(1))
        wait_until(ready, f"that the accelerator is ready for {name}", 60)
        ways["accelerator"] = optimisers.run
    seconds = _alternate(rule, blocks, ways, time_peer, elements)
    for way, goal in goals.items():
        yield _row(f"{name}, {megabytes} MB, {way}: million elements a second", elements, seconds, way, goal)


def _row(case: str, elements: int, seconds: Mapping[str, float], way: str, goal: float) -> Row:
    target = f">= {goal:g} x torch"
    if way not in seconds:
        return missed("R3", case, target, "the accelerator is not installed")
    value = round(elements / seconds[way] / 1e6)
    if "torch" not in seconds:
        return missed("R3", case, target, peers.missing("torch"), value)
    ratio = seconds["torch"] / seconds[way]
    return Row("R3", case, value, target, ratio >= goal, round(elements / seconds["torch"] / 1e6), round(ratio, 2))


def _blocks(rule: Optimiser, elements: int) -> Sequence[Sequence[Array]]:
    """Return parameter, gradient and state of every block, as on a server."""
    parameters = list(numpy_kernels.adjacent([(BLOCK_ELEMENTS, "<f4")] * (elements // BLOCK_ELEMENTS)))
    gradients = [np.full(BLOCK_ELEMENTS, 1e-3, "f4") for _ in parameters]
    states = rule.states(parameters)
    return [(p, g, *state) for p, g, state in zip(parameters, gradients, states, strict=True)]


def _alternate(
    rule: Optimiser,
    blocks: Sequence[Sequence[Array]],
    ways: Mapping[str, Update],
    time_peer: TimePeer | None,
    elements: int,
) -> dict[str, float]:
    """Return the median seconds of one update of everything. The ways and the peer take turns."""
    name = type(rule).__name__
    constants = rule.numbers(1)
    taken: dict[str, list[float]] = {way: [] for way in ways}
    if time_peer is not None:
        taken["torch"] = []
    for number in range(ROUNDS + 1):
        for way, spent in taken.items():
            seconds = (
                time_peer(name, elements)
                if time_peer and way == "torch"
                else _timed(ways[way], name, blocks, constants)
            )
            if number:  # the first round warms up
                spent.append(seconds)
    return {way: median(spent) for way, spent in taken.items()}


def _timed(update: Update, rule: str, blocks: Sequence[Sequence[Array]], constants: Sequence[float]) -> float:
    begun = time.perf_counter()
    for _ in range(REPEAT):
        for arrays in blocks:
            update(rule, arrays, constants)
    return (time.perf_counter() - begun) / REPEAT


# --- Peer ------------------------------------------------------------------------------------------------------------
@contextmanager
def _peer(python: str) -> Iterator[TimePeer]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [python, peers.NOT_BESIDE, str(PEER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        requests, answers = process.stdin, process.stdout
        answers.readline()

        def seconds(rule: str, elements: int) -> float:
            requests.write(f"{rule} {elements}\n")
            requests.flush()
            return float(answers.readline())

        yield seconds
        requests.close()
