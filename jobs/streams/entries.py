"""What a reader of a stream gets: lines and points with their sequence numbers, and pages of them. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

# Unix time, kind, text.
EventRow = tuple[float, str, str]


class LogLine(NamedTuple):
    """One line of output. ``time`` is unix time in seconds; ``stream`` is stdout, stderr, agent or
    system."""

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
    """Some lines in order. Everything from ``first`` to ``last`` was looked at: the cursors for the pages beside this
    one.

    ``more``: there are lines further on in the direction of reading. An empty page has ``last = first - 1``.
    """

    lines: list[LogLine]
    first: int
    last: int
    more: bool


class Gap(Exception):
    """A batch begins beyond the one after ``last``: the writer must go back and send what lies between."""

    def __init__(self, last: int) -> None:
        super().__init__(f"The last entry that was taken is {last}; send again from {last + 1}.")
        self.last = last


def number_to_json(value: float) -> float | int | str:
    """A number as JSON can hold it: NaN and the infinities as strings, whole numbers without a fraction."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return int(value) if value.is_integer() and abs(value) < 2**53 else value
