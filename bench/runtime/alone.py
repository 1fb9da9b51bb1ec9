"""R6: overhead of the runtime for a training that runs alone, relative to the same loop in plain NumPy.

A network of 1.1 million parameters learns the digits, two passes per round, the two loops in turns.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.report import Row
from runtime import contract
from runtime.parameters.optimisers import SGD
from runtime.trainer.environment import Alone
from runtime.trainer.job import Job
from runtime.trainer.metric_sinks import TerminalSink

Model = dict[str, NDArray[Any]]
ROUNDS = 5
PASSES = 2
# One chunk of the dataset. Batches do not cross the end of a task, so both loops make the same steps.
BATCH = 72
RATE = 0.05
GOAL = 1.05


def measure() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="regatta-bench-") as scratch:
        os.environ[contract.OUTPUT_DIR] = scratch
        loops: dict[str, Callable[[], None]] = {"plain": _plain_loop(), "ours": _our_loop}
        taken: dict[str, list[float]] = {name: [] for name in loops}
        for _ in range(ROUNDS):
            for name, loop in loops.items():
                begun = time.perf_counter()
                loop()
                taken[name].append(time.perf_counter() - begun)
    ours, plain = median(taken["ours"]), median(taken["plain"])
    ratio = round(ours / plain, 3)
    case = "one process over plain NumPy: time of two passes"
    return [Row("R6", case, ratio, f"<= {GOAL:g}", ratio <= GOAL, 1.0, ratio)]


def _model() -> Model:
    rng = np.random.default_rng(1)
    shapes = {"w1": (64, 1024), "w2": (1024, 1024), "w3": (1024, 10)}
    return {name: (rng.normal(size=shape) * 0.05).astype("f4") for name, shape in shapes.items()}


def _gradients(p: Any, x: NDArray[Any], y: NDArray[Any]) -> tuple[float, Model]:
    first = np.maximum(x @ p["w1"], 0)
    second = np.maximum(first @ p["w2"], 0)
    z = second @ p["w3"]
    z -= z.max(1, keepdims=True)
    e = np.exp(z)
    s = e / e.sum(1, keepdims=True)
    rows = np.arange(len(y))
    cost = float(-np.log(s[rows, y] + 1e-9).mean())
    s[rows, y] -= 1
    s /= len(y)
    back2 = (s @ p["w3"].T) * (second > 0)
    back1 = (back2 @ p["w2"].T) * (first > 0)
    return cost, {"w1": x.T @ back1, "w2": first.T @ back2, "w3": second.T @ s}


def _plain_loop() -> Callable[[], None]:
    x, y = Job(contract.read(), Alone(contract.read())).load("public/digits", "train")

    def loop() -> None:
        model = _model()
        for _ in range(PASSES):
            for start in range(0, len(y), BATCH):
                rows = slice(start, start + BATCH)
                _cost, gradients = _gradients(model, x[rows], y[rows])
                for name, gradient in gradients.items():
                    model[name] -= np.float32(RATE) * gradient

    return loop


def _our_loop() -> None:
    environment = contract.read()
    around = Alone(environment)
    around.sink = TerminalSink(lambda line: None)
    job = Job(environment, around)
    params = job.params(_model(), opt=SGD(RATE))
    for x, y in job.steps(job.reader("public/digits", batch=BATCH), passes=PASSES):
        cost, gradients = _gradients(params, x, y)
        params.push_pull(gradients, n=len(y))
        job.report(cost=cost)
