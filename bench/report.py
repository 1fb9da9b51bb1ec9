"""One measured row, and the table of rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

# Committed, so that measuring one row leaves the others in docs/benchmarks.md unchanged.
FOLDER = Path("bench/results")


@dataclass(frozen=True)
class Row:
    """Result of one case of a row.

    ``value`` and ``goal`` are in the unit that ``case`` names. ``ratio`` is value to peer, if there is a peer.
    ``bound`` is the physical limit of the case, if known. ``value`` is None if nothing could be measured; ``note``
    gives the reason or other information for the reader.
    """

    row: str
    case: str
    value: float | None
    goal: str
    met: bool
    peer: float | None = None
    ratio: float | None = None
    bound: float | None = None
    note: str = ""


def missed(row: str, case: str, goal: str, why: str, value: float | None = None) -> Row:
    """Return a row that is not reached because its peer, server or cluster is absent, or its measurement failed."""
    return Row(row, case, value, goal, met=False, note=why)


def at_most(row: str, case: str, value: float, limit: float, *, note: str = "") -> Row:
    return Row(row, case, value, f"<= {limit:g}", value <= limit, note=note)


def at_least(row: str, case: str, value: float, limit: float, *, note: str = "") -> Row:
    return Row(row, case, value, f">= {limit:g}", value >= limit, note=note)


def beside(row: str, case: str, value: float, peer: float | None, goal: float, *, note: str = "") -> Row:
    """Return ``value`` (more is better) beside a peer's. The goal is their ratio. ``peer`` is None if there is none."""
    target = f">= {goal:g} x" if goal else "none"
    if peer is None:
        return missed(row, case, target, note or "the peer is missing", value)
    return Row(row, case, value, target, value / peer >= goal, peer, value / peer, note=note)


def to_json(row: Row) -> dict[str, Any]:
    return asdict(row)


def from_json(body: Mapping[str, Any]) -> Row:
    names = {field.name for field in fields(Row)}
    return Row(**{name: value for name, value in body.items() if name in names})


def number(value: float | None) -> str:
    """Format a figure with its significant digits."""
    if value is None:
        return ""
    size = abs(value)
    digits = 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 0.1 or value == 0 else 4
    return f"{value:,.{digits}f}"


def table(rows: Sequence[Row]) -> str:
    lines = [f"{'row':<5}{'case':<70}{'value':>12}{'peer':>11}{'ratio':>7}  {'goal':<14}{'bound':>7}"]
    return "\n".join([*lines, *map(_line, rows)])


def _line(row: Row) -> str:
    value, peer, ratio, bound = map(number, (row.value, row.peer, row.ratio, row.bound))
    verdict = f"{'' if row.met else 'MISSED'}{f' ({row.note})' if row.note else ''}"
    return f"{row.row:<5}{row.case:<70}{value:>12}{peer:>11}{ratio:>7}  {row.goal:<14}{bound:>7}  {verdict}".rstrip()


def count_missed(rows: Iterable[Row]) -> int:
    return sum(not row.met for row in rows)
