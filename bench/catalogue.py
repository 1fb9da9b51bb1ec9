"""Rows of the benchmark, and the measurement that yields each.

A measurement is a module of this package with a function ``measure()``, which yields rows (``bench.report.Row``). It
runs in a separate process, so its module and dependencies are imported only if one of its rows is selected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LETTERS = {
    "R": "Runtime",
    "D": "Data",
    "S": "Streams",
    "P": "Portal",
    "K": "Kubernetes",
    "E": "Elastic jobs",
    "N": "Notebooks and looking into processes",
    "X": "One portal at scale",
}

# Goal of each row. Every figure is a goal of the row's module (tests/bench/test_goals.py). "x" is a ratio to the peer.
GOALS: Mapping[str, str] = {
    "R1": ">= 0.9 x gloo in every cell, >= 1.3 with bf16",
    "R1c": "<= 0.7 x gloo",
    "R1n": ">= 1.0 float32, >= 1.8 bf16",
    "R2": ">= 5 x gloo in every cell",
    "R3": ">= 0.9 with the optional accelerator, >= 0.6 / 0.7 / 0.35 with NumPy alone",
    "R4": "<= 1.15 x the link",
    "R5": ">= 1.8",
    "R6": "<= 1.05",
    "R7": "<= TTL + 2 s; no accepted gradient lost",
    "R8": ">= 5,000 / >= 4,000; state commit <= 100 KB at 10,000 tasks",
    "R9": "<= 2; checkpoint at >= 0.5 of dd with fsync",
    "R10": "equal",
    "D1": ">= 0.55 / >= 0.75 x raw; >= 4 x WebDataset, >= 2 x MDS, ahead of ArrayRecord",
    "D1s": "as far ahead of the same peers; >= 0.2",
    "D2": "<= 1 s, constant memory",
    "D3": ">= 0.5 x",
    "D4": "<= 150 MB above idle, each",
    "D5": "<= 3 %",
    "S1": "<= 250 / 600 ms",
    "S2": "100 % exactly once, p99 <= 250 ms",
    "S3": ">= 2,000,000 / >= 500,000; >= 100,000",
    "S4": "<= 30 ms; <= 1.5 s; <= 50 ms",
    "S5": "<= 1 s; <= 3 s or shows progress; <= 200 MB",
    "S6": "0, 0, 0",
    "P1": "<= 60 s; second start <= 5 s",
    "P2": "<= 3 s",
    "P3": "<= 300 ms; constant",
    "P4": ">= 50 / >= 100; never over-committed",
    "P5": "<= 700 KB; no page but charts loads the chart library",
    "K1": "<= 1.5 x",
    "K2": ">= 200/s; <= 0.3 s per 1,000 pods",
    "K3": "<= 1 s",
    "K4": "<= 250 MB",
    "K5": ">= 200/s decided",
    "E1": "<= 20 s",
    "E2": ">= 0.995 of the bound",
    "E3": ">= 0.97 of the bound of whole replicas / >= 177,551",
    "E4": ">= 0.9",
    "E5": ">= 0.99 of the bound without foresight",
    "E6": "<= 15 s; in all",
    "E7": "<= 10 ms / <= 1 s",
    "E8": "better than all on every trace",
    "E9": "1; 0",
    "N4": "<= 1 s; <= 2 %",
    "N5": ">= 11; 0",
    "X1": "<= 500 ms; <= 5 s",
    "X2": "<= 300 ms; lines lost or doubled: 0",
    "X3": "<= 1.05 x",
    "X5": "<= 200 KB",
}


@dataclass(frozen=True)
class Measurement:
    """Module that measures rows.

    ``rows`` are all rows that it yields, some of them several times. It is ended after ``limit`` seconds, several times
    its duration on an otherwise idle machine of two cores.
    """

    module: str
    rows: tuple[str, ...]
    limit: float = 300.0

    @property
    def name(self) -> str:
        """The module without its folder, which names its result file."""
        return self.module.rpartition(".")[2]

    @property
    def path(self) -> str:
        return f"bench/{self.module.replace('.', '/')}.py"

    @property
    def letter(self) -> str:
        return self.rows[0][0]


MEASUREMENTS: Sequence[Measurement] = (
    Measurement("runtime.steps", ("R1", "R2", "R10"), 900),
    Measurement("runtime.processor_time", ("R1c",), 600),
    Measurement("runtime.links", ("R1n",), 900),
    Measurement("runtime.scaling", ("R5",), 600),
    Measurement("runtime.updates", ("R3",), 600),
    Measurement("runtime.shaped", ("R4",)),
    Measurement("runtime.alone", ("R6",)),
    Measurement("runtime.recovery", ("R7",), 1200),
    Measurement("runtime.dispatch", ("R8",)),
    Measurement("runtime.checkpoint", ("R9",), 600),
    Measurement("datasets.reading", ("D1", "D1s", "D2"), 3600),
    Measurement("datasets.uploads", ("D3", "D4"), 1200),
    Measurement("datasets.waiting", ("D5",), 600),
    Measurement("streams.live_log", ("S1",)),
    Measurement("streams.fan_out", ("S2",), 600),
    Measurement("streams.points", ("S3",), 600),
    Measurement("streams.charts", ("S4",), 600),
    Measurement("streams.long_log", ("S5",), 900),
    Measurement("streams.stream_faults", ("S6",), 600),
    Measurement("pages.start", ("P1", "P2"), 1200),
    Measurement("pages.listing", ("P3",), 600),
    Measurement("pages.submissions", ("P4",), 600),
    Measurement("pages.page_weight", ("P5",), 600),
    Measurement("kubernetes.first_point", ("K1",), 900),
    Measurement("kubernetes.paddlejobs", ("K2", "K4"), 600),
    Measurement("kubernetes.reaction", ("K3",), 600),
    Measurement("kubernetes.admission_database", ("K5",), 1800),
    Measurement("elasticity.targets", ("E1", "E2", "E3", "E4", "E5", "E6", "E7"), 900),
    Measurement("elasticity.open_traces", ("E8", "E9"), 7200),
    Measurement("inspection.looks", ("N4",), 900),
    Measurement("inspection.hangs", ("N5",), 3600),
    Measurement("load.at_scale", ("X1", "X2", "X3"), 7200),
    Measurement("pages.growth", ("X5",), 1200),
)


def _place(row: str) -> tuple[int, int, str]:
    """Sort key: R2 before R10, and R1 before R1c."""
    digits = "".join(filter(str.isdigit, row))
    return list(LETTERS).index(row[0]), int(digits), row


ROWS: Sequence[str] = tuple(sorted((row for each in MEASUREMENTS for row in each.rows), key=_place))


def chosen(words: Sequence[str]) -> tuple[str, ...]:
    """Return the selected rows: ``S2``, ``d1s``, ``S``, or ``RD`` for letters; all by default. Raises ValueError."""
    known = {row.upper(): row for row in ROWS}
    found: set[str] = set()
    for word in (part.upper() for text in words for part in text.replace(",", " ").split()):
        if word in known:
            found.add(known[word])
        elif set(word) <= set(LETTERS):
            found |= {row for row in ROWS if row[0] in word}
        else:
            raise ValueError(f"There is no row {word}. Choose from {', '.join(LETTERS)}, {', '.join(ROWS)}.")
    return tuple(row for row in ROWS if row in found or not words)
