"""With an isolated program everything that it started ends."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import pytest

from tests.runtime.agent.cells import Cell, processes_named
from tests.waiting import until

pytestmark = pytest.mark.processes


def test_a_daemon_ends_with_its_job(cell: Cell) -> None:
    name = f"daemon-{uuid.uuid4().hex}"
    assert cell.run("daemon", env={"NAME": name}).output == "left"
    assert not processes_named(name)
    assert "left" in cell.control("daemon", NAME=name)
    for pid in until("the daemon has its name", lambda: processes_named(name)):
        os.kill(pid, 9)


def test_asked_to_stop_the_program_gets_the_signal_and_its_grace(cell: Cell) -> None:
    script = """
    import signal, sys, time
    signal.signal(signal.SIGTERM, lambda *_: (print("asked", flush=True), sys.exit(7)))
    print("ready", flush=True)
    time.sleep(60)
    """
    replica = cell.start(script)
    try:
        cell.portal.wait_until(lambda: "ready" in cell.portal.texts(), 30)
        replica.ask_to_stop()
        replica.wait(30)
        assert cell.portal.texts("stdout") == ["ready", "asked"]
        assert cell.portal.last_report()["code"] == 7
    finally:
        replica.end()


@pytest.mark.parametrize(
    ("script", "facts"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", {"code": None, "signal": 11}),
        ("raise SystemExit(3)", {"code": 3, "signal": None}),
    ],
)
def test_an_end_is_reported_as_the_program_ended(cell: Cell, script: str, facts: dict[str, object]) -> None:
    replica = cell.start(script)
    try:
        replica.wait(30)
        report = cell.portal.last_report()
        assert {name: report[name] for name in facts} == facts
    finally:
        replica.end()


def test_when_the_agent_is_killed_everything_inside_goes_with_it(cell: Cell) -> None:
    name = f"endless-{uuid.uuid4().hex}"
    replica = cell.start(
        f"""
        import subprocess, sys
        subprocess.run([sys.executable, "-c", "import time; print('ready', flush=True); time.sleep(300)", "{name}"])
        """
    )
    cell.portal.wait_until(lambda: "ready" in cell.portal.texts(), 30)
    replica.end()
    until("nothing is left", lambda: all(is_zombie(pid) for pid in processes_named(name)), 10)


def is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"Z"
    except OSError:
        return True
