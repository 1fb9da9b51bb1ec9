"""R1c: CPU seconds of all processes per GB that they move over TCP, compared with gloo.

The bytes of a step depend on the method: with servers every trainer sends its gradients and receives the parameters, in
a ring every worker sends 2 (N - 1) / N times the gradients. So gloo moves half of our bytes with 2 trainers and three
quarters with 4. The CPU time of one step, which is the cost of a training, is in the note. CPU time is the kernel's
figure for every process of the step, servers included, during the steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from statistics import median

from bench import peers
from bench.environment.processes import ROUNDS, make_steps, warm_up
from bench.report import Row, missed
from bench.runtime.step_groups import HERE, Team, gloo, ours
from bench.scale import scale

ELEMENTS = scale(10_000_000, 1_000_000)
TRAINERS = scale((2, 4), (2,))
GOAL = 0.7
_STEPS = scale(10, 2)  # per round: the kernel counts in hundredths of a second


def measure() -> Iterator[Row]:
    for trainers in TRAINERS:
        places = [HERE] * trainers
        with ExitStack() as stack:
            teams = {"ours": stack.enter_context(ours(ELEMENTS, "socket", places))}
            if python := peers.python_with("torch"):
                teams["gloo"] = stack.enter_context(gloo(python, ELEMENTS, places))
            seconds = _of_a_step(teams)
        yield _row(trainers, seconds)


def moved(product: str, trainers: int) -> float:
    """Return the GB that processes send in one step."""
    copies = 2 * trainers if product == "ours" else 2 * (trainers - 1)
    return copies * ELEMENTS * 4 / 1e9


def _of_a_step(teams: Mapping[str, Team]) -> dict[str, float]:
    """Return CPU seconds of each, the median of alternating rounds."""
    warm_up({name: team.makers for name, team in teams.items()})
    taken: dict[str, list[float]] = {name: [] for name in teams}
    for _ in range(ROUNDS):
        for name, team in teams.items():
            before = team.cpu_seconds()
            make_steps(team.makers, _STEPS)
            taken[name].append((team.cpu_seconds() - before) / _STEPS)
    return {name: median(each) for name, each in taken.items()}


def _row(trainers: int, seconds: Mapping[str, float]) -> Row:
    case, goal = f"TCP, {trainers} trainers, {ELEMENTS // 10**6}M: CPU seconds for each GB", f"<= {GOAL:g} x gloo"
    rates = {product: spent / moved(product, trainers) for product, spent in seconds.items()}
    if "gloo" not in rates:
        return missed("R1c", case, goal, peers.missing("torch"), round(rates["ours"], 3))
    ratio = rates["ours"] / rates["gloo"]
    note = f"CPU of one step: {1000 * seconds['ours']:.0f} ms, gloo {1000 * seconds['gloo']:.0f} ms"
    return Row("R1c", case, round(rates["ours"], 3), goal, ratio <= GOAL, round(rates["gloo"], 3), round(ratio, 2),
               note=note)  # fmt: skip
