"""One command measures rows by name, and a row whose measurement fails is MISSED while the others are measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench import catalogue, report, runner
from bench.catalogue import chosen
from bench.report import Row, at_most, beside, from_json, missed
from bench.results import NOT_MEASURED, Part, Results

RUN = {"date": "2026-01-01 00:00 UTC", "commit": "abc", "complete": True}
FIRST, SECOND = catalogue.MEASUREMENTS[:2]


def ran(folder: Path, body: str, *rows: str, limit: float = 60.0) -> runner.Outcome:
    """Return the outcome of a measurement whose module is this text.

    It runs in a separate process, because the runner ends all descendants of its process, and the tests have others.
    """
    (folder / "made_up.py").write_text(body)
    script = (
        "import json, bench\n"
        "from bench import runner\n"
        "from bench.catalogue import Measurement\n"
        "from dataclasses import asdict\n"
        f"print(json.dumps(asdict(runner.run(Measurement('made_up', {rows!r}), {limit!r}))))\n"
    )
    (folder / "sitecustomize.py").write_text(f"import bench\nbench.__path__.append({str(folder)!r})\n")
    paths = os.pathsep.join([str(runner.ROOT), str(folder)])
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    result = json.loads(done.stdout)
    return runner.Outcome([from_json(row) for row in result["rows"]], result["error"], result["seconds"])


@pytest.mark.parametrize(
    ("words", "rows"),
    [
        (["R4"], ("R4",)),
        (["d1S,r4"], ("R4", "D1s")),
        (["K"], tuple(row for row in catalogue.ROWS if row[0] == "K")),
        (["KD"], tuple(row for row in catalogue.ROWS if row[0] in "DK")),
        ([], tuple(catalogue.ROWS)),
    ],
)
def test_rows_are_chosen_by_letter_or_by_name(words: list[str], rows: tuple[str, ...]) -> None:
    assert chosen(words) == rows


def test_an_unknown_row_is_refused() -> None:
    with pytest.raises(ValueError, match="There is no row Q7"):
        chosen(["R1", "Q7"])


def test_every_row_has_one_measurement_and_every_measurement_a_module() -> None:
    assert len(set(catalogue.ROWS)) == len(catalogue.ROWS)
    folder = Path(catalogue.__file__).parent
    assert all("def measure() ->" in (folder.parent / each.path).read_text() for each in catalogue.MEASUREMENTS)
    assert all(len({row[0] for row in each.rows}) == 1 for each in catalogue.MEASUREMENTS)


def test_rows_are_those_that_the_measurement_yields(tmp_path: Path) -> None:
    body = "from bench.report import at_most\ndef measure():\n    yield at_most('R1', 'some case', 2.0, 3.0)\n"
    outcome = ran(tmp_path, body, "R1")
    assert (outcome.rows, outcome.error) == ([at_most("R1", "some case", 2.0, 3.0)], "")


def test_an_error_keeps_measured_rows_and_misses_the_rest(tmp_path: Path) -> None:
    body = (
        "from bench.report import at_most\n"
        "def measure():\n    yield at_most('R1', 'some case', 2.0, 3.0)\n    raise RuntimeError('no disk')\n"
    )
    outcome = ran(tmp_path, body, "R1", "R2")
    assert outcome.error == "RuntimeError: no disk"
    assert [(row.row, row.met, row.note) for row in outcome.rows] == [
        ("R1", True, ""),
        ("R1", False, "RuntimeError: no disk"),
        ("R2", False, "RuntimeError: no disk"),
    ]


def test_a_module_that_cannot_be_imported_misses_its_rows(tmp_path: Path) -> None:
    outcome = ran(tmp_path, "import no_such_package\n", "R1")
    assert [(row.met, row.note) for row in outcome.rows] == [
        (False, "ModuleNotFoundError: No module named 'no_such_package'")
    ]


def test_a_row_that_a_measurement_leaves_out_is_missed(tmp_path: Path) -> None:
    outcome = ran(tmp_path, "def measure():\n    return []\n", "R1")
    assert [(row.row, row.met, row.note) for row in outcome.rows] == [("R1", False, "the measurement left it out")]


def test_a_measurement_ends_in_time_with_all_its_processes(tmp_path: Path) -> None:
    left = tmp_path / "left"
    body = (
        "import subprocess, time\n"
        "def measure():\n"
        "    child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        f"    open({str(left)!r}, 'w').write(str(child.pid))\n"
        "    time.sleep(600)\n"
    )
    outcome = ran(tmp_path, body, "R1", limit=4)
    assert (outcome.error, [row.met for row in outcome.rows]) == ("it took longer than 4 s", [False])
    assert outcome.seconds < 60
    assert not Path(f"/proc/{left.read_text()}").exists()


# --- Results ---------------------------------------------------------------------------------------------------------
def test_the_list_of_a_letter_has_the_latest_rows_of_all_its_measurements(tmp_path: Path) -> None:
    results = Results(tmp_path)
    old, new, other = (at_most(name, "some case", value, 5) for name, value in (("R1", 1.0), ("R1", 2.0), ("R3", 3.0)))
    results.keep(FIRST, Part(RUN, [old]))
    results.keep(SECOND, Part(RUN, [other]))
    assert results.keep(FIRST, Part(RUN, [new])) == tmp_path / "R.json"
    body = json.loads((tmp_path / "R.json").read_text())
    assert [(row["row"], row["value"]) for row in body] == [("R1", 2.0), ("R3", 3.0)]
    assert {"row", "case", "value", "peer", "ratio", "goal", "met"} <= set(body[0])


def test_a_row_that_was_never_measured_is_missed(tmp_path: Path) -> None:
    (row,) = Results(tmp_path).rows(["R4"])
    assert (row.row, row.met, row.note) == ("R4", False, NOT_MEASURED)


def test_a_stored_part_is_read_back(tmp_path: Path) -> None:
    part = Part(RUN, [Row("R1", "some case", None, "<= 3", met=False, note="the peer torch is missing")])
    Results(tmp_path).keep(FIRST, part)
    assert Results(tmp_path).part(FIRST) == part


# --- Rows ------------------------------------------------------------------------------------------------------------
def test_without_a_peer_a_row_is_missed_and_keeps_its_value() -> None:
    row = beside("D1", "some case", 2.0, None, 0.5, note="the peer nginx is missing")
    assert (row.value, row.met, row.note) == (2.0, False, "the peer nginx is missing")


def test_the_table_names_missed_rows_and_the_reasons() -> None:
    text = report.table([at_most("R4", "in time", 1.0, 2.0), missed("K1", "start", "<= 1.5 x", "there is no cluster")])
    assert text.splitlines()[1].endswith("<= 2")
    assert text.splitlines()[2].endswith("MISSED (there is no cluster)")
