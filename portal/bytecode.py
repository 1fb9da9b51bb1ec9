"""Bytecode of the package that jobs import, written when the portal starts.

A job sees the package read-only: without it every trainer compiles all modules again.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_PROGRAM = "import compileall, os, sys; os.nice(10); compileall.compile_dir(sys.argv[1], quiet=2)"


def compile_in_background(package: Path) -> subprocess.Popen[bytes]:
    """Compile what is not compiled yet. A directory that cannot be written stays as it is. The process ends by itself
    and is not waited for."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _PROGRAM, str(package)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
