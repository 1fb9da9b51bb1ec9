"""Compilation of the runtime package, which jobs import, when the portal starts.

A job sees the package read-only. Without bytecode every trainer would compile all modules again.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_PROGRAM = "import compileall, os, sys; os.nice(10); compileall.compile_dir(sys.argv[1], quiet=2)"


def compile_in_background(package: Path) -> subprocess.Popen[bytes]:
    """Compile the modules of ``package`` that have no current bytecode, in a process of its own.

    A directory that cannot be written is skipped. The process ends by itself; the caller does not wait for it.
    """
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _PROGRAM, str(package)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
