"""R1, R2, R10: a synchronous step of trainers and two parameter servers, each a separate process.

R1   push gradients (float32, or bf16 on the wire), SGD, pull over TCP loopback, against gloo's all_reduce and SGD with
     as many workers
R2   the same with the memory that trainers and servers of one host share
R10  parameters after the same batches of the digits in two runs over TCP with Adam, bit for bit

In R1 and R2 the gradients are where each side reads them without a copy: gloo reduces the tensor that the model has
written, ours are in the arrays of ``Params.gradients``. Writing them there is not part of the step. Our parameters are
``mapped``: on one host the trainer sees them where the server has updated them.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack

from bench import peers
from bench.environment.processes import make_steps, seconds_of_a_step
from bench.report import Row, missed
from bench.runtime.step_groups import HERE, gloo, ours
from bench.scale import scale

MILLION = 10**6
SIZES = scale((1 * MILLION, 10 * MILLION, 50 * MILLION), (1 * MILLION,))
TRAINERS = scale((2, 4), (2,))
GOALS = {
    "socket": ("R1", "TCP, float32", 0.9),
    "bf16": ("R1", "TCP, bf16", 1.3),
    "shared": ("R2", "same host, float32", 5.0),
}

EXACT_STEPS = scale(200, 10)


def measure() -> list[Row]:
    rows = [row for trainers in TRAINERS for size in SIZES for row in _against_gloo(size, trainers)]
    return [*rows, *(_exact(trainers) for trainers in (1, 2, 4))]


# --- Rows ------------------------------------------------------------------------------------------------------------
def _against_gloo(elements: int, trainers: int) -> list[Row]:
    """Measure R1 and R2 of one cell, in alternating rounds with the peer."""
    with ExitStack() as stack:
        places = [HERE] * trainers
        groups = {wire: stack.enter_context(ours(elements, wire, places)).makers for wire in GOALS}
        if python := peers.python_with("torch"):
            groups["gloo"] = stack.enter_context(gloo(python, elements, places)).makers
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


def _exact(trainers: int) -> Row:
    """Measure R10. The digest is of the bytes of all parameters after the steps on batches of real data."""
    digests = set()
    for _run in range(2):
        with ours(0, "digits", [HERE] * trainers) as team:
            digests |= {digest for _seconds, digest in make_steps(team.makers, EXACT_STEPS)}
    equal = len(digests) == 1
    return Row(
        "R10",
        f"{trainers} trainers, Adam, TCP, {EXACT_STEPS} batches each: runs whose bits differ",
        0 if equal else 1,
        "0",
        equal,
    )
