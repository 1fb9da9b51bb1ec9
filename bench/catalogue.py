"""The rows that the platform is measured by, and the measurement that yields each.

A measurement is a module of this package with a function ``measure()``, which yields rows (``bench.report.Row``); it is
run in a process of its own, so its module and what that needs are imported only when one of its rows is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LETTERS = {
    "R": "Runtime",
    "D": "Data",
    "S": "Streams",
    "P": "Portal",
    "K": "Kubernetes",
    "E": "Elastic jobs",
}


@dataclass(frozen=True)
class Measurement:
    """``rows``: all rows that it yields, some of them several times. It is ended after ``limit`` seconds."""

    module: str
    rows: tuple[str, ...]
    limit: float = 300.0

    @property
    def letter(self) -> str:
        return self.rows[0][0]


MEASUREMENTS: Sequence[Measurement] = (
    Measurement("steps", ("R1", "R2", "R10"), 900),
    Measurement("processor_time", ("R1c",), 600),
    Measurement("links", ("R1n",), 900),
    Measurement("scaling", ("R5",), 600),
    Measurement("updates", ("R3",)),
    Measurement("shaped", ("R4",)),
    Measurement("alone", ("R6",)),
    Measurement("recovery", ("R7",), 600),
    Measurement("dispatch", ("R8",)),
    Measurement("checkpoint", ("R9",), 600),
    Measurement("data", ("D1", "D1s", "D2"), 600),
    Measurement("uploads", ("D3", "D4"), 900),
    Measurement("waiting", ("D5",)),
    Measurement("live_log", ("S1",)),
    Measurement("fan_out", ("S2",)),
    Measurement("points", ("S3",)),
    Measurement("charts", ("S4",)),
    Measurement("long_log", ("S5",), 600),
    Measurement("stream_faults", ("S6",), 600),
    Measurement("portal", ("P1", "P2"), 600),
    Measurement("listing", ("P3",)),
    Measurement("submissions", ("P4",)),
    Measurement("page_weight", ("P5",)),
    Measurement("first_point", ("K1",), 900),
    Measurement("paddlejobs", ("K2", "K4")),
    Measurement("reaction", ("K3",), 600),
    Measurement("admission_database", ("K5",), 900),
    Measurement("elastic", ("E1", "E2", "E3", "E4", "E5", "E6", "E7"), 900),
    Measurement("open_traces", ("E8", "E9"), 3600),
)


def _place(row: str) -> tuple[int, int, str]:
    """R2 before R10, and R1 before R1c."""
    digits = "".join(filter(str.isdigit, row))
    return list(LETTERS).index(row[0]), int(digits), row


ROWS: Sequence[str] = tuple(sorted((row for each in MEASUREMENTS for row in each.rows), key=_place))


def chosen(words: Sequence[str]) -> tuple[str, ...]:
    """The rows that words name: ``S2``, ``d1s``, ``S`` or ``RD`` for letters; all where there are none. ValueError."""
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
