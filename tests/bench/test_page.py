"""docs/benchmarks.md is generated from the results: each row is in it, with its environment."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from bench import page
from bench.catalogue import GOALS, MEASUREMENTS, ROWS, Measurement
from bench.report import FOLDER, Row, at_most, missed
from bench.results import Part, Results

ROOT = Path(__file__).resolve().parents[2]
RUN: dict[str, Any] = {
    "date": "2026-01-01 00:00 UTC",
    "commit": "0123456789ab",
    "command": "python -m bench",
    "machine": "Some CPU, 2 cores, 8 GiB, Linux 6.1.0",
    "versions": {"Python": "3.11.7", "nginx": "missing"},
    "quick": False,
    "load": 0.4,
    "seconds": 90,
    "complete": True,
}


def measurement_of(row: str) -> Measurement:
    return next(each for each in MEASUREMENTS if row in each.rows)


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return Results(tmp_path)


def lines_of(text: str, row: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(f"| {row} |")]


def test_a_row_is_shown_with_value_peer_ratio_and_goal(results: Results) -> None:
    row = Row("R4", "push_pull of 8 MB", 140.04, "<= 1.15 x", met=True, peer=134.0, ratio=1.045)
    results.keep(measurement_of("R4"), Part(RUN, [row]))
    assert lines_of(page.text(results), "R4") == [
        "| R4 | push_pull of 8 MB | 140.0 | 134.0 | 1.04 |  | <= 1.15 x | reached |"
    ]


def test_a_row_that_is_not_reached_or_could_not_be_measured_has_a_reason(results: Results) -> None:
    rows = [at_most("R4", "late", 3.0, 2.0), missed("R4", "absent", "<= 2", "the peer torch is missing")]
    results.keep(measurement_of("R4"), Part(RUN, rows))
    late, absent = lines_of(page.text(results), "R4")
    assert late.endswith("| <= 2 | **MISSED** |")
    assert absent.endswith("| <= 2 | **MISSED** the peer torch is missing |")


def test_every_row_is_on_the_page_even_if_it_was_not_measured(results: Results) -> None:
    text = page.text(results)
    assert all(
        lines_of(text, row) == [f"| {row} | not measured |  |  |  |  | {GOALS[row]} | **MISSED** not measured |"]
        for row in ROWS
    )


def test_the_page_names_what_was_measured_on_which_machine(results: Results) -> None:
    results.keep(measurement_of("R4"), Part(RUN, [at_most("R4", "in time", 1.0, 2.0)]))
    text = page.text(results)
    assert "## Measured at `0123456789ab`\n\n- Machine: Some CPU, 2 cores" in text
    assert "- Versions: Python 3.11.7, nginx missing" in text
    assert "| 2026-01-01 00:00 UTC | `python -m bench` | R4 | 0.4 |" in text


def test_rows_of_two_commands_are_listed_with_their_own_runs(results: Results) -> None:
    later = {**RUN, "date": "2026-01-02 00:00 UTC", "command": "python -m bench R6"}
    results.keep(measurement_of("R4"), Part(RUN, [at_most("R4", "in time", 1.0, 2.0)]))
    results.keep(measurement_of("R6"), Part(later, [at_most("R6", "in time", 1.0, 2.0)]))
    text = page.text(results)
    assert text.count("## Measured at") == 1
    assert "| 2026-01-01 00:00 UTC | `python -m bench` | R4 | 0.4 |" in text
    assert "| 2026-01-02 00:00 UTC | `python -m bench R6` | R6 | 0.4 |" in text


@pytest.mark.parametrize(("field", "value"), [("commit", "fedcba987654"), ("machine", "Other"), ("versions", {})])
def test_rows_of_another_commit_machine_or_version_are_separate(results: Results, field: str, value: Any) -> None:
    results.keep(measurement_of("R4"), Part(RUN, [at_most("R4", "in time", 1.0, 2.0)]))
    results.keep(measurement_of("R6"), Part({**RUN, field: value}, [at_most("R6", "in time", 1.0, 2.0)]))
    assert page.text(results).count("## Measured at") == 2


def test_a_quick_run_is_not_shown(results: Results) -> None:
    results.keep(measurement_of("R4"), Part({**RUN, "quick": True}, [at_most("R4", "in time", 1.0, 2.0)]))
    (line,) = lines_of(page.text(results), "R4")
    assert line.endswith("| **MISSED** not measured |")


def test_the_page_has_the_duration_and_the_load_of_the_measurement(results: Results) -> None:
    results.keep(measurement_of("R4"), Part(RUN, [at_most("R4", "in time", 1.0, 2.0)]))
    assert "| `bench/runtime/shaped.py` | R4 | 90 | 300 | 0.4 |" in page.text(results)


def test_the_page_is_written_to_the_documents(tmp_path: Path, results: Results) -> None:
    where = page.write(tmp_path, tmp_path / "benchmarks.md")
    assert where.read_text() == page.text(results)


def test_the_page_of_this_checkout_matches_its_results() -> None:
    """``python -m bench.page`` writes it."""
    assert (ROOT / page.PAGE).read_text() == page.text(Results(ROOT / FOLDER))


@pytest.mark.parametrize("measurement", MEASUREMENTS, ids=lambda each: each.name)
def test_the_results_of_the_page_are_not_ignored_by_git(measurement: Measurement) -> None:
    path = FOLDER / "parts" / f"{measurement.name}.json"
    done = subprocess.run(["git", "check-ignore", "--quiet", "--no-index", str(path)], cwd=ROOT, check=False)
    assert done.returncode == 1, f"git ignores {path}"
