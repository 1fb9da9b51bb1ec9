"""R1n: a synchronous step of 10 million numbers where every process is a separate host behind 1 Gbit/s.

2, 4 and 8 trainers with as many parameter servers, against gloo's ring of as many workers on the same links, in
alternating rounds. Each process is in a network namespace (``namespaces.py``): the kernel limits the rate of every link
in each direction and adds 0.2 ms one way. If the kernel has no netem, no delay is added, which the rows state. A ring
waits for more sequential messages than a step with servers does, so links without delay favour it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

from bench import peers
from bench.environment.processes import seconds_of_a_step
from bench.environment.servers import Absent
from bench.report import Row, missed
from bench.runtime import namespaces
from bench.runtime.step_groups import gloo, ours
from bench.scale import scale

ELEMENTS = scale(10_000_000, 1_000_000)
TRAINERS = scale((2, 4, 8), (2,))
RATE, DELAY = "1gbit", "200us"
GOALS = {"socket": ("float32", 1.0), "bf16": ("bf16", 1.8)}
_STEPS = 2  # per round


def measure() -> Iterator[Row]:
    for trainers in TRAINERS:
        try:
            with namespaces.star(2 * trainers, RATE, DELAY) as star:
                rows = list(_rows(star, trainers))
        except Absent as error:
            rows = [missed("R1n", _case(wire, trainers), _goal(wire), str(error)) for wire in GOALS]
        yield from rows


def _rows(star: namespaces.Star, trainers: int) -> Iterator[Row]:
    """Measure both. Trainers and gloo's workers use the same first hosts in turns; servers use the others."""
    workers, servers = star.places[:trainers], star.places[trainers:]
    with ExitStack() as stack:
        groups = {
            wire: stack.enter_context(ours(ELEMENTS, wire, workers, servers)).makers for wire in GOALS
        }  # fmt: skip
        if python := peers.python_with("torch"):
            groups["gloo"] = stack.enter_context(gloo(python, ELEMENTS, workers)).makers
        seconds = seconds_of_a_step(groups, steps=_STEPS)
    note = "" if star.delayed else "without the 0.2 ms: this kernel has no netem"
    for wire, (_how, goal) in GOALS.items():
        value = round(1 / seconds[wire], 2)
        if "gloo" not in seconds:
            yield missed("R1n", _case(wire, trainers), _goal(wire), peers.missing("torch"), value)
            continue
        ratio, peer = seconds["gloo"] / seconds[wire], round(1 / seconds["gloo"], 2)
        yield Row("R1n", _case(wire, trainers), value, _goal(wire), ratio >= goal, peer, round(ratio, 2), note=note)


def _case(wire: str, trainers: int) -> str:
    return f"1 Gbit/s, {GOALS[wire][0]}, {trainers} trainers, {ELEMENTS // 10**6}M: steps a second"


def _goal(wire: str) -> str:
    return f">= {GOALS[wire][1]:g} x gloo"
