"""Entries of a stream: lines and points with their sequence numbers, and pages of lines. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

# Unix time, kind, text.
EventRow = tuple[float, str, str]


class LogLine(NamedTuple):
    """One line of output. ``time`` is unix time in seconds; ``stream`` is stdout, stderr, agent or system."""

    seq: int
    time: float
    replica: str
    stream: str
    text: str

    def to_json(self) -> dict[str, Any]:
        return self._asdict()


class Point(NamedTuple):
    """One value of one metric. ``time`` is unix time in seconds."""

    seq: int
    time: float
    attempt: int
    replica: str
    step: float
    key: str
    value: float

    def to_json(self) -> dict[str, Any]:
        return self._asdict() | {"step": number_to_json(self.step), "value": number_to_json(self.value)}


@dataclass(frozen=True)
class LogPage:
    """Lines in order. The page covers ``first`` to ``last``, which are the cursors of the adjacent pages.

    ``more``: further lines follow in the direction of reading. An empty page has ``last = first - 1``.
    """

    lines: list[LogLine]
    first: int
    last: int
    more: bool


class Gap(Exception):
    """Raised for a batch that begins after ``last + 1``: the writer must resend from there."""

    def __init__(self, last: int) -> None:
        super().__init__(f"The last entry that was taken is {last}; send again from {last + 1}.")
        self.last = last


def number_to_json(value: float) -> float | int | str:
    """Return a number for JSON: NaN and the infinities as strings, whole numbers without a fraction."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return int(value) if value.is_integer() and abs(value) < 2**53 else value
