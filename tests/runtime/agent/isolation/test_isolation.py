"""Isolated hostile programs reach no files, processes and servers but their own."""

from __future__ import annotations

import uuid

import pytest

from runtime.isolation import landlock, syscalls
from tests.runtime.agent.cells import HOSTILE, Cell

pytestmark = pytest.mark.processes


@pytest.mark.invariant("On one machine, user code reaches no files, processes and servers but its own.")
@pytest.mark.parametrize("search_path", ["", "/:/root:{data}"])
def test_files_of_the_portal_and_of_the_machine_are_out_of_reach(cell: Cell, search_path: str) -> None:
    found = {"PYTHONPATH": search_path.format(data=cell.data)} if search_path else {}
    assert cell.run("files", env=found).output == "HELD"
    control = cell.control("files")
    assert all(attack in control for attack in (f"open {cell.secret}", "chmod", "utime", "write"))


@pytest.mark.skipif(not syscalls.landlock_version(), reason="the kernel has no Landlock")
def test_without_namespaces_only_files_that_libraries_read_are_readable_in_etc(cell: Cell) -> None:
    # A file of the machine that every user may read, like settings with the usual mode.
    env = {"SETTINGS": "/etc/hostname"}
    outcome = cell.run("configuration", env=env, sandbox="landlock")
    assert outcome.output.splitlines() == ["HELD", "libraries work"]
    assert not cell.portal.texts("stderr")
    control = cell.control("configuration", **env)
    assert all(path in control for path in (cell.variables()["CLOSED"], "/proc/self/root/etc/hostname", "list "))


@pytest.mark.invariant("On one machine, user code reaches no files, processes and servers but its own.")
def test_other_processes_are_out_of_reach(cell: Cell) -> None:
    assert cell.run("processes").output == "HELD"
    control = cell.control("processes")
    victim = cell.victim.pid
    assert all(f"{attack} {victim}" in control for attack in ("prlimit", "ptrace", "kill", "setpriority", "affinity"))


@pytest.mark.invariant("On one machine, user code reaches no files, processes and servers but its own.")
def test_servers_that_trust_a_user_id_are_out_of_reach(cell: Cell) -> None:
    output = cell.run("sockets").output
    assert str(cell.data) not in output
    if syscalls.landlock_version() >= landlock.SCOPES_SINCE:
        assert output == "HELD"
    assert cell.control("sockets").count("answers secret") == 2


@pytest.mark.invariant("On one machine, user code reaches no files, processes and servers but its own.")
def test_the_control_socket_of_its_agent_is_out_of_reach(cell: Cell) -> None:
    replica = cell.start((HOSTILE / "control_socket.py").read_text(), CONTROL_KEY="key")
    replica.wait()
    replica.end()
    assert cell.portal.texts("stdout") == ["HELD"]
    assert (replica.directory / "control.socket").exists(), "there was one"


def test_calls_that_no_training_needs_are_refused_by_the_filter(cell: Cell) -> None:
    assert cell.run("kernel").output == "HELD"
    assert "REACHED" in cell.control("kernel")


def test_keys_of_the_kernel_are_not_listed(cell: Cell) -> None:
    name = f"regatta-{uuid.uuid4().hex}"
    control = cell.control("keys", NAME=name)
    assert name in control
    assert cell.run("keys", env={"NAME": name}).output == "HELD"


def test_loader_variables_reach_the_program_alone(cell: Cell) -> None:
    work = cell.data / "attempts" / "attempt" / "trainer-0" / "work"
    hostile = {"PYTHONPATH": str(work), "PYTHONSTARTUP": str(work / "x"), "LD_PRELOAD": "/nowhere/evil.so"}
    outcome = cell.run("variables", env={**hostile, "GCONV_PATH": str(work), "LD_AUDIT": "/nowhere/audit.so"})
    assert outcome.output.strip() == f"2 {cell.job_uid}"
    complaints = [line for line in cell.portal.texts("stderr") if "evil.so" in line]
    assert len(complaints) == 1


def test_a_python_home_of_the_job_breaks_the_job_alone(cell: Cell) -> None:
    outcome = cell.run("variables", env={"PYTHONHOME": "/nowhere"})
    assert outcome.report["code"] == 1
