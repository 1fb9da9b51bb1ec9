"""Scenario files made from the open traces: ``python -m bench.elasticity.derived_traces`` writes them into
``bench/elasticity/traces``.

The output is deterministic: the same sources give the same files. ``noisy``: each job's work is multiplied by 0.4 to
2.5 (uniform in its logarithm), the scaling law is worse by a factor of 1 to 4, and a job begins with at least half of
the trainers that it was submitted with. ``priorities``: 0, 1 or 2 for 6, 3 and 1 of ten jobs. ``hours``: the same
arrivals spread over three times as long, on a cluster of 20 GPUs, so that jobs of different priorities come hours
apart.
"""

from __future__ import annotations

import csv
import random
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

FOLDER = Path(__file__).parent / "traces"
Row = dict[str, str]
_LEAST_WORK, _MOST_WORK, _WORST_SCALING = 0.4, 2.5, 4.0
_PRIORITIES = ("0",) * 6 + ("1",) * 3 + ("2",)
_SPREAD = 3


def noisy(row: Row, chance: random.Random) -> Row:
    factor = _LEAST_WORK * (_MOST_WORK / _LEAST_WORK) ** chance.random()
    scaling = min(1.0, float(row["scaling"]) * chance.uniform(1.0, _WORST_SCALING))
    least = max(1, int(row["replicas"]) // 2)
    return {**row, "min": str(least), "work": str(round(int(row["work"]) * factor)), "scaling": f"{scaling:.3f}"}


def with_priority(row: Row, chance: random.Random) -> Row:
    return {**row, "priority": chance.choice(_PRIORITIES)}


def over_hours(row: Row, chance: random.Random) -> Row:
    """Adapt a job to a small cluster: gaps times three, half of the trainers, at most a quarter of the largest work."""
    replicas, work = max(1, min(16, int(row["replicas"]) // 2)), min(int(row["work"]), 160_000)
    least, most = max(1, replicas // 2), max(4, min(20, int(row["max"]) // 2))
    spread = {"time": str(int(row["time"]) * _SPREAD), "replicas": str(replicas), "work": str(work)}
    row = {**row, "min": str(least), "max": str(most)}
    return with_priority({**row, **spread}, chance)


Change = Callable[[Row, random.Random], Row]


def _noisy_with_priority(row: Row, chance: random.Random) -> Row:
    return with_priority(noisy(row, chance), chance)


# By file: its source and the change.
FILES: Mapping[str, tuple[str, Change]] = {
    "noisy-1": ("tuned-1", noisy),
    "noisy-6": ("tuned-6", noisy),
    "noisy-half-3": ("half-3", noisy),
    "noisy-double": ("double", noisy),
    "priorities-1": ("tuned-1", with_priority),
    "priorities-6": ("tuned-6", with_priority),
    "priorities-noisy-1": ("tuned-1", _noisy_with_priority),
    "hours-4": ("as-submitted-4", over_hours),
    "hours-6": ("tuned-6", over_hours),
}
# The clusters of files that are not for 64 GPUs.
CLUSTERS: Mapping[str, str] = {"hours-4": "small-cluster.json", "hours-6": "small-cluster.json"}


def derived(name: str, seed: int = 0) -> list[Row]:
    """Return the rows of a file. Another ``seed`` gives another random draw."""
    source, change = FILES[name]
    chance = random.Random(f"{name}-{seed}")
    with (FOLDER / f"{source}.csv").open(newline="", encoding="utf-8") as file:
        return [change(row, chance) for row in csv.DictReader(file)]


def write(name: str, path: Path, seed: int = 0) -> None:
    rows = derived(name, seed)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main() -> int:
    for name in FILES:
        write(name, FOLDER / f"{name}.csv")
    return 0


if __name__ == "__main__":
    sys.exit(main())
