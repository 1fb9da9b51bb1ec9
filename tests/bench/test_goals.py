"""The goals that measurements judge by are those of the catalogue, which the page shows."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping, Sequence

import pytest

from bench.catalogue import GOALS, ROWS

# By row: the module, and what in it evaluates to each goal.
JUDGED_BY: Mapping[str, tuple[str, Sequence[str]]] = {
    "R1": ("steps", ["GOALS['socket'][2]", "GOALS['bf16'][2]"]),
    "R1c": ("processor_time", ["GOAL"]),
    "R1n": ("links", ["GOALS['socket'][1]", "GOALS['bf16'][1]"]),
    "R2": ("steps", ["GOALS['shared'][2]"]),
    "R3": ("updates", ["ACCELERATOR_GOAL", *(f"NUMPY_GOALS['{name}']" for name in ("SGD", "Momentum", "Adam"))]),
    "R4": ("shaped", ["GOAL"]),
    "R5": ("scaling", ["GOAL"]),
    "R6": ("alone", ["GOAL"]),
    "R7": ("recovery", ["BEYOND_THE_LEASE_SECONDS"]),
    "R8": ("dispatch", ["EMBEDDED_GOAL", "ETCD_GOAL", "COMMIT_GOAL_KB", "TASKS"]),
    "R9": ("checkpoint", ["PAUSE_GOAL", "SPEED_GOAL"]),
    "D1": ("data", ["RAW_GOALS[0]", "RAW_GOALS[1]", "_PEERS['webdataset'].goal", "_PEERS['mds'].goal"]),
    "D1s": ("data", ["SNAPPY_GOAL"]),
    "D2": ("data", ["INDEX_GOAL_SECONDS"]),
    "D3": ("uploads", ["GOAL"]),
    "D4": ("uploads", ["MEMORY_GOAL"]),
    "D5": ("waiting", ["GOAL"]),
    "S1": ("live_log", ["P50_GOAL_MS", "P99_GOAL_MS"]),
    "S2": ("fan_out", ["100", "P99_GOAL_MS"]),
    "S3": ("points", ["STORE_GOALS['SQLite']", "STORE_GOALS['PostgreSQL']", "INGEST_GOAL"]),
    "S4": ("charts", ["ANSWER_GOAL_MS", "PAINT_GOAL_S", "UPDATE_GOAL_MS"]),
    "S5": ("long_log", ["OPEN_GOAL_S", "SEARCH_GOAL_S", "MEMORY_GOAL_MB"]),
    "S6": ("stream_faults", ["0", "0", "0"]),
    "P1": ("portal", ["FRESH_GOAL", "LATER_GOAL"]),
    "P2": ("portal", ["FIRST_POINT_GOAL"]),
    "P3": ("listing", ["GOAL_MS"]),
    "P4": ("submissions", ["GOALS['SQLite']", "GOALS['PostgreSQL']"]),
    "P5": ("page_weight", ["GOAL_KB"]),
    "K1": ("first_point", ["GOAL"]),
    "K2": ("paddlejobs", ["PASSES_GOAL", "DECODE_GOAL", "1000"]),
    "K3": ("reaction", ["GOAL"]),
    "K4": ("paddlejobs", ["MEMORY_GOAL"]),
    "K5": ("admission_database", ["GOAL"]),
    "E1": ("elastic", ["WAIT_GOAL"]),
    "E2": ("elastic", ["USE_GOAL"]),
    "E3": ("elastic", ["WORK_GOAL", "FIXED_SECONDS"]),
    "E4": ("elastic", ["JAIN_GOAL"]),
    "E5": ("elastic", ["USE_2_GOAL"]),
    "E6": ("elastic", ["RECOVERY_GOAL"]),
    "E7": ("elastic", ["DECISION_GOAL_MS", "LARGE_DECISION_GOAL"]),
    "E9": ("open_traces", ["MOST_STOPS", "0"]),
    "X5": ("growth", ["GOAL_KB"]),
}
# Their goals are no figures: equal bits, and less than every peer.
_WITHOUT_FIGURES = {"R10", "E8"}


@pytest.mark.parametrize("row", JUDGED_BY)
def test_a_row_is_judged_by_the_figures_of_its_goal(row: str) -> None:
    module, names = JUDGED_BY[row]
    values = [float(eval(name, vars(importlib.import_module(f"bench.{module}")))) for name in names]
    figures = [float(text.replace(",", "")) for text in re.findall(r"(?<![A-Za-z\d])\d[\d,]*(?:\.\d+)?", GOALS[row])]
    assert sorted(values) == sorted(figures)


def test_every_row_has_a_goal() -> None:
    assert list(GOALS) and set(GOALS) == set(ROWS) == set(JUDGED_BY) | _WITHOUT_FIGURES
