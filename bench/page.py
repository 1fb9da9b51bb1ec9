"""``python -m bench.page [folder]``: generate docs/benchmarks.md from the stored results.

A row without a complete run is in the table as MISSED. Results of quick runs are not shown.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.catalogue import GOALS, LETTERS, MEASUREMENTS, ROWS, Measurement
from bench.report import FOLDER, Row, count_missed, missed, number
from bench.results import NOT_MEASURED, Part, Results

PAGE = Path("docs/benchmarks.md")
_HEAD = """\
# Benchmarks

This page is written by `make bench` (`bench/page.py`); do not edit it. Each row is measured beside its peer in one run,
alternating, as the median of at least five rounds unless its module in `bench/` says otherwise. Machines are shared and
noisy: a ratio to a peer is the figure, an absolute time illustrates it. **MISSED** marks a row whose goal was not
reached, whose peer, server or cluster was absent, or that was not measured. `make bench ROWS=S2` measures one row.
"""


def text(results: Results) -> str:
    parts = {measurement: part for measurement, part in results.parts().items() if not part.run.get("quick")}
    measured = [row for part in parts.values() for row in part.rows]
    rows = {name: [row for row in measured if row.row == name] for name in ROWS}
    sections = [_HEAD, *_runs(parts), *(_section(letter, rows) for letter in LETTERS), _cost(parts)]
    return "\n".join(sections)


def _runs(parts: Mapping[Measurement, Part]) -> Iterator[str]:
    """Yield one section for each commit, machine and set of versions, with its commands."""
    if not parts:
        yield "Nothing has been measured yet.\n"
        return
    groups: dict[tuple[str, ...], dict[tuple[str, str], list[tuple[Measurement, Part]]]] = {}
    for measurement, part in parts.items():
        run = part.run
        where = (str(run["commit"]), str(run["machine"]), _versions(run["versions"]))
        command = (str(run["date"]), str(run["command"]))
        groups.setdefault(where, {}).setdefault(command, []).append((measurement, part))
    for (commit, machine, versions), commands in groups.items():
        yield f"## Measured at `{commit}`" + (" (+: with changes that were not committed)" if commit[-1] == "+" else "")
        yield f"\n- Machine: {machine}\n- Versions: {versions}\n"
        yield "| date | command | rows | load average before |\n|---|---|---|---|"
        yield from (_command(*command, members) for command, members in sorted(commands.items()))
        yield ""


def _command(date: str, command: str, members: Sequence[tuple[Measurement, Part]]) -> str:
    rows = sorted((row for measurement, _ in members for row in measurement.rows), key=ROWS.index)
    loads = sorted({float(part.run["load"]) for _, part in members})
    load = " to ".join(f"{value:g}" for value in (loads[0], *loads[1:][-1:]))
    return f"| {date} | `{command}` | {', '.join(rows)} | {load} |"


def _versions(versions: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _section(letter: str, rows: Mapping[str, Sequence[Row]]) -> str:
    own = {name: found for name, found in rows.items() if name[0] == letter}
    total = sum(max(1, len(found)) for found in own.values())
    open_goals = sum(count_missed(found) if found else 1 for found in own.values())
    lines = [
        f"## {letter}: {LETTERS[letter]}",
        "",
        f"{total - open_goals} of {total} reached.",
        "",
        "| row | case | value | peer | ratio | bound | goal | |",
        "|---|---|---:|---:|---:|---:|---|---|",
    ]
    for name, found in own.items():
        lines += map(_line, found) if found else [_line(missed(name, NOT_MEASURED, GOALS[name], NOT_MEASURED))]
    return "\n".join([*lines, ""])


def _line(row: Row) -> str:
    verdict = "reached" if row.met else "**MISSED**"
    note = f" {row.note}" if row.note else ""
    figures = (number(figure) for figure in (row.value, row.peer, row.ratio, row.bound))
    cells = (row.row, row.case, *figures, row.goal, verdict + note)
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _cost(parts: Mapping[Measurement, Part]) -> str:
    """Return the duration of each measurement, and the load of the machine when it began."""
    seconds = {measurement: int(part.run["seconds"]) for measurement, part in parts.items()}
    lines = ["## What measuring takes", "", f"All of it: {sum(seconds.values()) / 60:.0f} minutes.", ""]
    loads = {measurement: f"{part.run['load']:g}" for measurement, part in parts.items()}
    lines += ["| module | rows | seconds | limit | load average before |", "|---|---|---:|---:|---:|"]
    for each in MEASUREMENTS:
        taken = str(seconds[each]) if each in seconds else "not measured"
        lines.append(f"| `{each.path}` | {', '.join(each.rows)} | {taken} | {each.limit:g} | {loads.get(each, '')} |")
    return "\n".join([*lines, ""])


def write(folder: Path = FOLDER, page: Path = PAGE) -> Path:
    page.write_text(text(Results(folder)), encoding="utf-8")
    return page


if __name__ == "__main__":
    print(f"Written: {write(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)}")
