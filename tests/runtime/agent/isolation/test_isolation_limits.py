"""Isolated hostile programs stay within their limits of memory, disk and processes."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from runtime import contract
from runtime.messages import training as messages
from tests import cgroup_tree
from tests.messages import mentions
from tests.runtime.agent.cells import HOSTILE, JOB_UID, MIB, Cell, processes_named
from tests.runtime.agent.conftest import Replica
from tests.waiting import until

pytestmark = pytest.mark.processes


def test_an_agent_cannot_be_blinded(cell: Cell) -> None:
    report = cell.run("blind", LIMIT_MEMORY=250 * MIB).report
    assert report["out_of_memory"]
    assert mentions(report["why"], messages.OUT_OF_MEMORY_USED)


@pytest.mark.invariant("An agent that cannot measure its process ends it.")
def test_an_agent_that_cannot_measure_ends_its_process(cell: Cell) -> None:
    """The control of the test above: without isolation the agent is blinded, and must not continue as if nothing was
    used."""
    script, go = (HOSTILE / "blind.py").read_text(), cell.data / "go"
    replica = cell.start(script, env={"GO": str(go)}, SANDBOX="none", LIMIT_MEMORY=250 * MIB)
    try:
        until("the agent sends what the program prints", lambda: "started" in cell.portal.texts("stdout"))
        go.touch()
        assert replica.wait(60) != 0
        assert "Unmeasurable: /proc/" in replica.complaint()
        assert not processes_named(str(replica.directory / "work"))
    finally:
        replica.end()


@pytest.mark.parametrize("kind", ["shm", "memfd"])
def test_memory_that_no_process_has_mapped_counts(cell: Cell, kind: str) -> None:
    name = f"regatta-{uuid.uuid4().hex}"
    outcome = cell.run("memory", env={"KIND": kind, "NAME": name}, LIMIT_MEMORY=200 * MIB)
    assert "REACHED" not in outcome.output
    assert mentions(outcome.report["why"], messages.OUT_OF_MEMORY_USED), outcome
    assert not Path("/dev/shm", name).exists()
    if kind == "shm":
        assert "REACHED" in cell.control("memory", KIND=kind, NAME=name)
        Path("/dev/shm", name).unlink()


@pytest.mark.parametrize("kind", ["files", "removed", "names"])
def test_the_disk_has_a_limit(cell: Cell, kind: str) -> None:
    outcome = cell.run("disk", env={"KIND": kind}, LIMIT_DISK=30 * MIB)
    assert "REACHED" not in outcome.output
    assert outcome.report["code"] == contract.EXIT_ERROR
    assert mentions(outcome.report["why"], messages.OUT_OF_DISK, limit="30 MiB")


def test_a_program_within_the_disk_limit_continues(cell: Cell) -> None:
    assert "REACHED" in cell.run("disk", env={"KIND": "files"}, LIMIT_DISK=200 * MIB).output


def test_a_fork_bomb_is_ended_and_leaves_nothing(cell: Cell) -> None:
    outcome = cell.run("bomb", LIMIT_PROCESSES=40)
    assert outcome.report["why"] == messages.TOO_MANY_PROCESSES(count=40)
    if cell.mode == "uid":
        assert not [entry for entry in Path("/proc").iterdir() if entry.name.isdigit() and owner(entry) == JOB_UID]


def owner(entry: Path) -> int:
    try:
        return entry.stat().st_uid
    except OSError:
        return -1


@cgroup_tree.needed
def test_a_program_cannot_leave_its_cgroup_nor_see_where_it_is(grouped: Cell) -> None:
    assert grouped.group is not None
    leaf = str(grouped.group.parent / "portal")
    assert grouped.run("cgroup", env={"GROUP": leaf}).output == "HELD"
    control = grouped.control("cgroup", GROUP=leaf)
    assert "REACHED" in control
    assert leaf in control


@cgroup_tree.needed
def test_a_program_and_all_it_starts_is_in_its_cgroup_which_goes_with_it(grouped: Cell) -> None:
    name, group = f"daemon-{uuid.uuid4().hex}", grouped.group
    assert group is not None
    replica = grouped.start(
        f"""
        import subprocess, sys, time
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)", "{name}"], start_new_session=True)
        print("ready", flush=True)
        time.sleep(300)
        """
    )
    try:
        grouped.portal.wait_until(lambda: "ready" in grouped.portal.texts(), 30)
        assert replica.process is not None
        inside = cgroup_tree.inside(group)
        # The launcher, the first process of the namespace, the program, and the daemon, but not the agent.
        assert len(inside) == 4
        assert set(processes_named(name)) < set(inside)
        assert replica.process.pid not in inside
        replica.ask_to_stop()
        replica.wait(30)
        assert not group.exists()
    finally:
        replica.end()


def test_a_program_whose_cgroup_cannot_be_entered_does_not_start(replica: Replica, tmp_path: Path) -> None:
    report = replica.run("print('ran', flush=True)", CGROUP=tmp_path / "nowhere")
    assert report["code"] == contract.EXIT_ERROR
    assert mentions(report["why"], messages.NOT_STARTED)
    assert replica.portal.texts("stdout") == []


@pytest.mark.parametrize(
    ("kills", "why"),
    [(1, messages.OUT_OF_MEMORY_REACHED(limit="64 MiB")), (0, messages.TERMINATED_BY_SIGNAL(signal="9 (SIGKILL)"))],
)
def test_a_process_killed_by_the_kernel_for_memory_has_that_reason(
    replica: Replica, tmp_path: Path, kills: int, why: str
) -> None:
    """In a directory in place of a cgroup whose limit was reached."""
    for name, text in {"procs": "", "kill": ""}.items():
        (tmp_path / f"cgroup.{name}").write_text(text)
    (tmp_path / "memory.events").write_text(f"max 9\noom 1\noom_kill {kills}\n")
    script = "import os; os.kill(os.getpid(), 9)"
    report = replica.run(script, CGROUP=tmp_path, LIMIT_MEMORY=64 * MIB, SANDBOX="none")
    assert (report["why"], report["out_of_memory"]) == (why, bool(kills))
