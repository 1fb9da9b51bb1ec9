"""Measurements of processes that have ended in part, as root and as an ordinary user."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from typing import Any

import pytest

pytestmark = pytest.mark.processes

MIB = 2**20
USERS = ["root", "ordinary"] if os.geteuid() == 0 else ["ordinary"]


@pytest.fixture(params=USERS)
def command(request: pytest.FixtureRequest) -> list[str]:
    """Return the command that starts a program."""
    change = ["-m", "tests.unprivileged", sys.executable] if request.param == "ordinary" and os.geteuid() == 0 else []
    return [sys.executable, *change]


def measured(command: list[str], child: str) -> Any:
    """Return a parent's measurement of the child, which writes to ``ready`` when there is something to measure."""
    parent = """
    import dataclasses, json, os, sys
    from runtime.agent import process_tree
    reading, ready = os.pipe()
    pid = os.fork()
    if pid == 0:
        exec(sys.argv[1])
    os.close(ready)
    os.read(reading, 1)
    if sys.argv[2]:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    own = os.getpid()
    try:
        found = process_tree.census(own), process_tree.shared_out(own), process_tree.held(own)
    finally:
        os.kill(pid, 9)
    print(json.dumps([dataclasses.asdict(each) for each in found]))
    """
    ends = "1" if "_exit" in child else ""
    words = [*command, "-c", textwrap.dedent(parent), textwrap.dedent(child), ends]
    return json.loads(subprocess.run(words, capture_output=True, check=True, timeout=60).stdout)


def test_a_process_that_nobody_has_waited_for_holds_nothing(command: list[str]) -> None:
    census, shared_out, held = measured(command, "os._exit(0)")
    assert census == {"tasks": 1, "memory": {"own": 0, "shared": 0}}
    assert shared_out == {"own": 0, "shared": 0}
    assert held == {"memory": 0, "disk": 0}


def test_memory_and_files_count_after_the_first_thread_has_ended(command: list[str]) -> None:
    census, shared_out, held = measured(
        command,
        f"""
        import ctypes, platform, threading, time
        libc, first = ctypes.CDLL(None), os.getpid()

        def go_on():
            while "Z" not in open(f"/proc/self/task/{{first}}/stat").read().rpartition(")")[2]:
                pass
            memory = bytearray(b"x" * {64 * MIB})
            os.write(os.memfd_create("held"), bytes({16 * MIB}))
            os.write(ready, b"x")
            time.sleep(600)

        threading.Thread(target=go_on).start()
        libc.syscall({{"x86_64": 60, "aarch64": 93}}[platform.machine()], 0)
        """,
    )
    assert census["tasks"] == 2
    assert census["memory"]["own"] > 64 * MIB
    assert shared_out["own"] > 64 * MIB
    assert held["memory"] == 16 * MIB
