"""Landlock rules on a process of this machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from runtime.isolation import landlock, syscalls

NAMES_ITS_THREAD = """
import sys
from runtime.isolation import execution, syscalls
syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
syscalls.landlock_restrict(execution.ruleset([], sys.argv[1:]))
try:
    open("/proc/self/comm", "w").write("named")
except PermissionError:
    print("refused")
else:
    print(open("/proc/self/comm").read().strip())
"""

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.skipif(not syscalls.landlock_version(), reason="the kernel has no Landlock")
@pytest.mark.parametrize(("devices", "answer"), [((), "refused"), (("/dev/null",), "named")])
def test_only_a_process_with_gpus_names_its_threads_as_cuda_does(devices: tuple[str, ...], answer: str) -> None:
    command = [sys.executable, "-c", NAMES_ITS_THREAD, *devices]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={"PYTHONPATH": str(ROOT)})
    assert done.stdout.strip() == answer


def test_a_process_without_gpus_gets_no_right_for_them() -> None:
    assert landlock.for_gpus([]) == {}
