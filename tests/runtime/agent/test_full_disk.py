"""A full disk costs lines, and never how the process ended."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from runtime import contract
from runtime.agent.state_file import BYTES, FILE, Reserve
from runtime.contract import ReplicaState
from tests.runtime.agent.conftest import Replica
from tests.runtime.agent.ingest_server import IngestServer
from tests.waiting import until

WAITS = """
import pathlib, sys, time
print("up", flush=True)
while not pathlib.Path("go").exists():
    time.sleep(0.01)
sys.exit(7)
"""


def fill_disk_of(replica: Replica) -> None:
    """From now on no file of the agent can grow, and no new file can hold a byte."""
    assert replica.process is not None
    hard = resource.prlimit(replica.process.pid, resource.RLIMIT_FSIZE)[1]
    resource.prlimit(replica.process.pid, resource.RLIMIT_FSIZE, (0, hard))


@pytest.mark.invariant("The exit code of a process is reported even if the disk is full.")
@pytest.mark.processes
def test_how_the_process_ended_is_reported_from_a_full_disk(replica: Replica, portal: IngestServer) -> None:
    replica.start(WAITS)
    portal.wait_until(lambda: "up" in portal.texts())
    fill_disk_of(replica)
    (replica.directory / "work" / "go").touch()
    replica.wait()
    assert (portal.last_report()["phase"], portal.last_report()["code"]) == ("exited", 7)
    complaint = replica.complaint()
    assert "The state of this replica (exited) cannot be written" in complaint
    assert "Traceback" not in complaint


@pytest.mark.processes
def test_a_process_whose_output_does_not_fit_on_disk_is_stopped_and_reported(
    replica: Replica, portal: IngestServer
) -> None:
    replica.start("import time\nwhile True: print('x' * 100, flush=True); time.sleep(0.01)")
    portal.wait_until(lambda: bool(portal.taken["logs"]))
    fill_disk_of(replica)
    replica.wait()
    assert portal.last_report()["phase"] == "exited"
    assert "could not be kept" in portal.last_report()["why"]
    assert "Traceback" not in replica.complaint()


def test_the_reserve_allocates_disk_blocks_and_releases_them(tmp_path: Path) -> None:
    reserve = Reserve(tmp_path)
    assert (tmp_path / FILE).stat().st_blocks * 512 >= BYTES
    reserve.release()
    reserve.release()
    assert list(tmp_path.iterdir()) == []


def test_where_no_blocks_can_be_held_there_is_no_reserve(tmp_path: Path) -> None:
    Reserve(tmp_path / "missing").release()


@pytest.mark.processes
def test_an_agent_holds_its_reserve_while_it_runs_and_leaves_none_behind(
    replica: Replica, portal: IngestServer
) -> None:
    replica.start(WAITS)
    portal.wait_until(lambda: "up" in portal.texts())
    until("it has its reserve", lambda: (replica.directory / FILE).exists())
    (replica.directory / "work" / "go").touch()
    replica.wait()
    assert not (replica.directory / FILE).exists()


@pytest.mark.processes
def test_a_replica_whose_spools_cannot_be_opened_is_ended_and_reports_the_cause(
    replica: Replica, portal: IngestServer
) -> None:
    (replica.directory / "metrics.spool").mkdir(parents=True)
    replica.start("import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(60)")
    assert replica.wait() == contract.EXIT_ERROR
    report = portal.last_report()
    assert (report["phase"], report["code"]) == ("exited", contract.EXIT_ERROR)
    assert report["why"] == "what it printed could not be kept: Is a directory"
    assert replica.state is not None and (replica.state.phase, replica.state.delivered) == ("exited", True)
    assert "Traceback" not in replica.complaint()
    pid = replica.directory / "work" / "pid"
    assert not pid.exists() or not Path("/proc", pid.read_text()).exists()


@pytest.mark.invariant("The exit code of a process is reported even if the disk is full.")
@pytest.mark.processes
def test_the_end_is_reported_though_the_spool_cannot_be_opened(replica: Replica, portal: IngestServer) -> None:
    (replica.directory / "metrics.spool").mkdir(parents=True)
    ReplicaState(1, 1, "exited", 0.0, code=7).write(replica.directory)
    assert replica.deliver() == contract.EXIT_OK
    assert portal.last_report()["code"] == 7
    assert "Traceback" not in replica.complaint()
