"""``python -m bench [--quick] [--resume] [rows]``: measure, print a table per letter, store the results.

Rows are selected by letter (``S``) or by name (``S2``); all by default. A row whose measurement fails or times out is
MISSED, and the next is measured. Results are written to bench/results after each measurement, so that ``--resume``
skips measurements that are complete for this commit. ``docs/benchmarks.md`` is generated from them (``bench.page``);
both are committed. ``--quick`` runs everything at small size, to test that it works, and writes to build/bench/quick.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from bench import about, page, report, runner
from bench.catalogue import LETTERS, MEASUREMENTS, Measurement, chosen
from bench.results import Part, Results
from bench.scale import QUICK_VARIABLE

QUICK_FOLDER = Path("build/bench/quick")
QUICK_MARK = "QUICK: far smaller than the rows say. These figures are of no use but to see that the rows work."


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    try:
        rows = chosen(options.rows)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    os.chdir(runner.ROOT)
    if options.quick:
        os.environ[QUICK_VARIABLE] = "1"
    Path("build").mkdir(exist_ok=True)
    results = Results(QUICK_FOLDER if options.quick else report.FOLDER)
    wanted = [each for each in MEASUREMENTS if set(each.rows) & set(rows)]
    run = {**about.run(" ".join(["python -m bench", *arguments])), "quick": options.quick}
    finished = [each for each in wanted if options.resume and _is_finished(results, each, run["commit"])]
    for measurement in wanted:
        if measurement not in finished:
            results.forget(measurement)
    for number, measurement in enumerate(wanted, 1):
        names = ", ".join(measurement.rows)
        where = f"[{number}/{len(wanted)}] {names} ({measurement.path})"
        if measurement in finished:
            print(f"{where}: already measured at this commit.", flush=True)
            continue
        print(f"{where}: at most {measurement.limit:g} s ...", flush=True)
        part = _measure(measurement, run)
        results.keep(measurement, part)
        print(report.table(part.rows), f"{part.run['seconds']:g} s", sep="\n", flush=True)
    _summarise(results, rows, options.quick)
    if not options.quick:
        print(f"{page.write()} is written.")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Measure rows, print tables, keep the results."
    )
    parser.add_argument("rows", nargs="*", help="letters (S), rows (S2), or nothing for all")
    parser.add_argument("--quick", action="store_true", help="measure everything small, to see that it works")
    parser.add_argument("--resume", action="store_true", help="leave out what this commit has measured to the end")
    return parser


def _is_finished(results: Results, measurement: Measurement, commit: str) -> bool:
    part = results.part(measurement)
    return part is not None and bool(part.run["complete"]) and part.run["commit"] == commit


def _measure(measurement: Measurement, run: dict[str, object]) -> Part:
    load = about.load()
    outcome = runner.run(measurement, measurement.limit)
    if outcome.error:
        print(f"{measurement.module}: {outcome.error}", file=sys.stderr, flush=True)
    own = {"load": load, "seconds": round(outcome.seconds), "complete": not outcome.error}
    return Part({**run, **own}, outcome.rows)


def _summarise(results: Results, names: Sequence[str], quick: bool) -> None:
    for letter, title in LETTERS.items():
        of_letter = [name for name in names if name[0] == letter]
        if not of_letter:
            continue
        rows = results.rows(of_letter)
        print(f"\n{letter}: {title}. {report.count_missed(rows)} of {len(rows)} MISSED.", report.table(rows), sep="\n")
    folder = QUICK_FOLDER if quick else report.FOLDER
    print(f"\nThe results are in {folder}.{f' {QUICK_MARK}' if quick else ''}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
