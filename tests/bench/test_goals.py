"""Measurements use the goals of the catalogue, which the page shows."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping, Sequence

import pytest

from bench.catalogue import GOALS, MEASUREMENTS, ROWS

# By row: expressions in its module that evaluate to each goal.
JUDGED_BY: Mapping[str, Sequence[str]] = {
    "R1": ["GOALS['socket'][2]", "GOALS['bf16'][2]"],
    "R1c": ["GOAL"],
    "R1n": ["GOALS['socket'][1]", "GOALS['bf16'][1]"],
    "R2": ["GOALS['shared'][2]"],
    "R3": ["ACCELERATOR_GOAL", *(f"NUMPY_GOALS['{name}']" for name in ("SGD", "Momentum", "Adam"))],
    "R4": ["GOAL"],
    "R5": ["GOAL"],
    "R6": ["GOAL"],
    "R7": ["BEYOND_THE_LEASE_SECONDS"],
    "R8": ["EMBEDDED_GOAL", "ETCD_GOAL", "COMMIT_GOAL_KB", "TASKS"],
    "R9": ["PAUSE_GOAL", "SPEED_GOAL"],
    "D1": ["RAW_GOALS[0]", "RAW_GOALS[1]", "_PEERS['webdataset'].goal", "_PEERS['mds'].goal"],
    "D1s": ["SNAPPY_GOAL"],
    "D2": ["INDEX_GOAL_SECONDS"],
    "D3": ["GOAL"],
    "D4": ["MEMORY_GOAL"],
    "D5": ["GOAL"],
    "S1": ["P50_GOAL_MS", "P99_GOAL_MS"],
    "S2": ["100", "P99_GOAL_MS"],
    "S3": ["STORE_GOALS['SQLite']", "STORE_GOALS['PostgreSQL']", "INGEST_GOAL"],
    "S4": ["ANSWER_GOAL_MS", "PAINT_GOAL_S", "UPDATE_GOAL_MS"],
    "S5": ["OPEN_GOAL_S", "SEARCH_GOAL_S", "MEMORY_GOAL_MB"],
    "S6": ["0", "0", "0"],
    "P1": ["FRESH_GOAL", "LATER_GOAL"],
    "P2": ["FIRST_POINT_GOAL"],
    "P3": ["GOAL_MS"],
    "P4": ["GOALS['SQLite']", "GOALS['PostgreSQL']"],
    "P5": ["GOAL_KB"],
    "K1": ["GOAL"],
    "K2": ["PASSES_GOAL", "DECODE_GOAL", "1000"],
    "K3": ["GOAL"],
    "K4": ["MEMORY_GOAL"],
    "K5": ["GOAL"],
    "E1": ["WAIT_GOAL"],
    "E2": ["USE_GOAL"],
    "E3": ["WORK_GOAL", "FIXED_SECONDS"],
    "E4": ["JAIN_GOAL"],
    "E5": ["USE_2_GOAL"],
    "E6": ["RECOVERY_GOAL"],
    "E7": ["DECISION_GOAL_MS", "LARGE_DECISION_GOAL"],
    "E9": ["MOST_STOPS", "0"],
    "N4": ["STACKS_GOAL_S", "SLOWER_GOAL_PERCENT"],
    "N5": ["HANGS_GOAL", "ALARMS_GOAL"],
    "X1": ["SWEEP_MS", "RUNNING_SECONDS"],
    "X2": ["API_MS", "LINES_GOAL"],
    "X3": ["GROWTH"],
    "X5": ["GOAL_KB"],
}
# Goals without figures: equal bits, and less than every peer.
_WITHOUT_FIGURES = {"R10", "E8"}


@pytest.mark.parametrize("row", JUDGED_BY)
def test_a_row_is_judged_by_the_figures_of_its_goal(row: str) -> None:
    module = importlib.import_module(f"bench.{next(each.module for each in MEASUREMENTS if row in each.rows)}")
    values = [float(eval(name, vars(module))) for name in JUDGED_BY[row]]
    figures = [float(text.replace(",", "")) for text in re.findall(r"(?<![A-Za-z\d])\d[\d,]*(?:\.\d+)?", GOALS[row])]
    assert sorted(values) == sorted(figures)


def test_every_row_has_a_goal() -> None:
    assert list(GOALS) and set(GOALS) == set(ROWS) == set(JUDGED_BY) | _WITHOUT_FIGURES
