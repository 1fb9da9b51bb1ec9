"""Stored results: one file per measurement with its run, and one list of rows per letter.

``parts/<measurement>.json`` is ``{"run": {...}, "rows": [...]}``; ``<letter>.json`` has the latest rows of a letter,
from different runs. A row that was never measured is in neither file, and is MISSED in tables.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.catalogue import GOALS, MEASUREMENTS, ROWS, Measurement
from bench.report import Row, from_json, missed, to_json

NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Part:
    """Rows of one measurement, and its run: date, commit, command, machine, versions, load, seconds, complete."""

    run: Mapping[str, Any]
    rows: Sequence[Row]


class Results:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def part(self, measurement: Measurement) -> Part | None:
        path = self._path(measurement)
        if not path.exists():
            return None
        body = json.loads(path.read_text(encoding="utf-8"))
        return Part(body["run"], [from_json(row) for row in body["rows"]])

    def forget(self, measurement: Measurement) -> None:
        self._path(measurement).unlink(missing_ok=True)

    def keep(self, measurement: Measurement, part: Part) -> Path:
        """Store a part, replacing an earlier one, and the list of its letter. Return the path of the list."""
        path = self._path(measurement)
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(path, {"run": dict(part.run), "rows": list(map(to_json, part.rows))})
        letter = self._folder / f"{measurement.letter}.json"
        _write(letter, [to_json(row) for row in self._measured() if row.row[0] == measurement.letter])
        return letter

    def rows(self, names: Iterable[str]) -> list[Row]:
        """Return all rows of these names in order; one that was not measured is MISSED."""
        names = list(names)
        measured = self._measured()
        return [row for name in names for row in _named(name, measured)]

    def parts(self) -> dict[Measurement, Part]:
        found = {each: self.part(each) for each in MEASUREMENTS}
        return {each: part for each, part in found.items() if part}

    def _measured(self) -> list[Row]:
        rows = [row for part in self.parts().values() for row in part.rows if row.row in ROWS]
        return sorted(rows, key=lambda row: ROWS.index(row.row))

    def _path(self, measurement: Measurement) -> Path:
        return self._folder / "parts" / f"{measurement.name}.json"


def _named(name: str, rows: Sequence[Row]) -> Sequence[Row]:
    return [row for row in rows if row.row == name] or [missed(name, NOT_MEASURED, GOALS[name], NOT_MEASURED)]


def _write(path: Path, body: object) -> None:
    """Replace a file atomically, so that an interrupted run leaves a readable one."""
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(body, indent=2) + "\n", encoding="utf-8")
    fresh.replace(path)
