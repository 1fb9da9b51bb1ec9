"""R4: a push of 8 MB of gradients and a pull of as many parameters over a slow link, against the link's limit.

The link is a userland proxy between a trainer and a parameter server: 0.5 Gbit/s in each direction, 1 ms each way. The
limit is the time that the numbers take one way, because the way back is free at the same time. Trainer, server and
proxy are separate processes.

``python -m bench.runtime.shaped WIRE ADDRESS`` is the trainer.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack

import numpy as np

from bench.environment.processes import answer, one_thread, ready, running, seconds_of_a_step
from bench.report import Row
from bench.runtime import step_process
from bench.runtime.proxy import Proxy
from bench.runtime.step_process import FIRST_INCARNATION
from runtime import contract
from runtime.parameters.optimisers import SGD
from runtime.protocol.client import Client
from runtime.trainer.params import Params
from runtime.trainer.servers.server_store import ServerStore

ELEMENTS = 2_000_000
RATE = 0.5e9 / 8  # bytes per second
DELAY = 0.001  # seconds, one way
GOAL = 1.15
# Bytes of a number in transit to the server.
SIZES = {contract.F32: 4, contract.BF16: 2}


def measure() -> list[Row]:
    with ExitStack() as stack:
        groups = {}
        for wire in SIZES:
            server = stack.enter_context(
                running([sys.executable, "-m", step_process.__name__, "server", "0", "1", "1"], one_thread())
            )
            link = Proxy(answer(server))
            stack.callback(link.close)
            link.edge.weather.rate, link.edge.weather.delay = RATE, DELAY
            trainer = running([sys.executable, "-m", "bench.runtime.shaped", wire, link.address], one_thread())
            groups[wire] = ready([stack.enter_context(trainer)])
        seconds = seconds_of_a_step(groups, steps=3)
    return [_row(wire, seconds[wire]) for wire in SIZES]


def _row(wire: str, seconds: float) -> Row:
    link = ELEMENTS * SIZES[wire] / RATE + 2 * DELAY
    ratio = seconds / link
    case = f"push_pull of 8 MB as {wire} at 0.5 Gbit/s, 1 ms: ms"
    return Row("R4", case, round(1000 * seconds, 1), f"<= {GOAL} x link", ratio <= GOAL, round(1000 * link, 1),
               round(ratio, 2))  # fmt: skip


def train(wire: str, address: str) -> None:
    """For each line of standard input make that many steps. Print the seconds of one step and the resulting version."""
    store = ServerStore([Client(address, incarnation=FIRST_INCARNATION)], share=False, wire=wire)
    params = Params({"w": np.zeros(ELEMENTS, "f4")}, store, SGD(0.1))
    gradients = {"w": np.random.default_rng(1).normal(scale=1e-3, size=ELEMENTS).astype("f4")}
    print("ready", flush=True)
    for line in sys.stdin:
        begun = time.perf_counter()
        for _ in range(int(line)):
            params.push_pull(gradients)
        print((time.perf_counter() - begun) / int(line), params.version, flush=True)


if __name__ == "__main__":
    train(sys.argv[1], sys.argv[2])
