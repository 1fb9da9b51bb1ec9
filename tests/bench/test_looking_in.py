"""Rows N4 and N5 measure what their texts state."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench.environment.servers import Absent
from bench.inspection import hangs, looks, replica_processes
from bench.inspection.seeded_hangs import HANGS, Hang, spec_of
from jobs.lifecycle.progress import stacks
from jobs.lifecycle.progress.stacks import Frame, Thread
from jobs.selectors.specifications import parse

BY_NAME = {hang.name: hang for hang in HANGS}
DEADLOCK = BY_NAME["deadlock"]
RIGHT = f"trainer-1 stands at train.py line {DEADLOCK.line} (hang) and waits for a lock or a thread"


# --- Hangs -----------------------------------------------------------------------------------------------------------
def test_there_are_the_twelve_hangs_of_the_row() -> None:
    assert len(BY_NAME) == 12


@pytest.mark.parametrize("hang", HANGS, ids=lambda hang: hang.name)
def test_the_job_of_a_hang_is_valid(hang: Hang) -> None:
    compile(hang.script, "train.py", "exec")
    assert parse(spec_of("hangs", hang.script)).stall_timeout is not None


@pytest.mark.parametrize(
    ("replica", "text", "right"),
    [
        ("trainer-1", RIGHT, True),
        ("trainer-0", RIGHT, False),
        ("trainer-1", RIGHT.replace(f"line {DEADLOCK.line}", "line 99"), False),
        ("trainer-1", RIGHT.replace("a lock", "a queue"), False),
    ],
)
def test_a_hang_is_named_by_its_replica_line_and_cause(replica: str, text: str, right: bool) -> None:
    assert DEADLOCK.is_named_by({"replica": replica, "text": text}) is right


@pytest.mark.parametrize(
    ("name", "wait"),
    [
        ("deadlock", stacks.LOCK),
        ("blocked pipe", stacks.PIPE),
        ("dead file system", stacks.FILE),
        ("two-party wait", stacks.NETWORK),
    ],
)
def test_the_marked_line_is_the_one_that_waits(name: str, wait: str) -> None:
    hang = BY_NAME[name]
    thread = Thread("MainThread", native=False, frames=(Frame("train.py", hang.line, "hang"),))
    found = stacks.wait_of(thread, hang.script.splitlines()[hang.line - 1])
    assert found is not None
    assert found.on == wait


def test_a_hang_that_cannot_be_seeded_is_not_named_and_listed() -> None:
    row = hangs.row_of(
        {**{hang.name: "" for hang in HANGS}, "SIGSTOP": "no event", "full disk": "not seeded: no mount"}
    )
    assert (row.value, row.met) == (10, False)
    assert row.note == "SIGSTOP: no event; full disk: not seeded: no mount"


def test_what_the_machine_forbids_is_not_seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def absent(disk: bool = False) -> Iterator[Any]:
        raise Absent("no file system can be mounted")
        yield

    monkeypatch.setattr(hangs, "_portal", absent)
    assert hangs._outcome(BY_NAME["full disk"]) == "not seeded: no file system can be mounted"
    assert hangs._outcome(BY_NAME["swapped order of two pushes"]).startswith("not seeded: ")


def test_the_ports_to_which_a_process_listens_are_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert server.getsockname()[1] in replica_processes.listening_ports(os.getpid())


# --- Healthy runs ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(6))
def test_a_healthy_run_raises_no_alarm(seed: int) -> None:
    assert not hangs.alarms_of_healthy_run(seed, declared=seed % 2 == 0)


def test_a_run_whose_evaluation_does_not_end_raises_an_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hangs, "_EVALUATION_SECONDS", 7200.0)
    assert hangs.alarms_of_healthy_run(1, declared=False)


# --- Sampling --------------------------------------------------------------------------------------------------------
def test_the_rate_is_that_of_the_window_alone() -> None:
    points = [(0.0, 0.0), (10.0, 100.0), (11.0, 120.0), (12.0, 140.0), (20.0, 1000.0)]
    assert looks.rate(points, 10.0, 13.0) == 20.0


def test_a_window_without_reports_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="too seldom"):
        looks.rate([(0.0, 0.0), (10.0, 100.0)], 2.0, 5.0)


def test_the_slow_down_compares_neighbours() -> None:
    assert looks.percent_slower([100.0, 50.0], [98.0, 50.0]) == pytest.approx([2.0, 0.0])


def test_without_the_peer_the_reason_is_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(looks.peers, "PYTHON", str(tmp_path / "python"))
    monkeypatch.setattr(looks.shutil, "which", lambda name: None)
    assert looks._peer(tmp_path) == (None, "py-spy is not installed")


def test_a_replica_that_does_not_run_is_absent(tmp_path: Path) -> None:
    with pytest.raises(Absent, match="no process of trainer-1"):
        replica_processes.script_of(tmp_path, "trainer-1")
