"""Peer packages, in a separate environment: their requirements differ from ours.

``make bench`` creates it (``scripts/bench_peers.sh``). REGATTA_BENCH_PYTHON names another interpreter that has them.
"""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path

PYTHON = os.environ.get("REGATTA_BENCH_PYTHON", str(Path(__file__).resolve().parent.parent / "build/peers/bin/python"))
REQUIREMENTS = Path(__file__).with_name("requirements-peers.txt")
# Python option that ignores modules beside the script: peers import others with the names of ours.
NOT_BESIDE = "-P"
# By name on PyPI.
PACKAGES = tuple(
    line.partition("==")[0] for line in REQUIREMENTS.read_text(encoding="utf-8").splitlines() if "==" in line
)


@cache
def python_with(*modules: str) -> str:
    """Return an interpreter that can import these modules; empty if there is none."""
    script = "".join(f"import {module}\n" for module in modules)
    if not Path(PYTHON).exists():
        return ""
    return PYTHON if subprocess.run([PYTHON, "-c", script], capture_output=True, check=False).returncode == 0 else ""


def missing(package: str) -> str:
    """Return the note of a row whose peer is not installed."""
    return f"the peer {package} is missing"
