"""One measured row, its table and its file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

FOLDER = Path("build/bench")


@dataclass(frozen=True)
class Row:
    """``value`` and ``goal`` in the unit that ``case`` names. Where there is a peer, ``ratio`` is value to peer.
    ``bound``: what nobody can exceed in this case, where that is known."""

    row: str
    case: str
    value: float
    goal: str
    met: bool
    peer: float | None = None
    ratio: float | None = None
    bound: float | None = None


def write(letter: str, rows: Sequence[Row]) -> Path:
    """Keep the rows of a letter; the file is replaced."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{letter}.json"
    path.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n", encoding="utf-8")
    return path


def table(rows: Sequence[Row]) -> str:
    lines = [f"{'row':<5}{'case':<58}{'value':>10}{'peer':>10}{'ratio':>7}  {'goal':<12}{'bound':>7}"]
    return "\n".join([*lines, *map(_line, rows)])


def _line(row: Row) -> str:
    known = (row.peer, row.ratio, row.bound)
    peer, ratio, bound = (f"{number:.2f}" if number is not None else "" for number in known)
    verdict = "" if row.met else "  MISSED"
    return f"{row.row:<5}{row.case:<58}{row.value:>10.2f}{peer:>10}{ratio:>7}  {row.goal:<12}{bound:>7}{verdict}"
