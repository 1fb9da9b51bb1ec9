"""Environment of a run: machine, commit, time, and the versions of peers and servers."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import peers

# Command that prints the version, by the name for the table.
_TOOLS: Mapping[str, Sequence[str]] = {
    "Chromium": ("chromium", "--version"),
    "curl": ("curl", "--version"),
    "etcd": ("etcd", "--version"),
    "nginx": ("nginx", "-v"),
    "PostgreSQL": ("psql", "--version"),
    "Redis": ("redis-server", "--version"),
}

# Changed by measuring.
_RESULTS = (":!bench/results", ":!docs/benchmarks.md")


def run(command: str) -> dict[str, Any]:
    """Return everything that is the same for all measurements of one command."""
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "commit": commit(),
        "command": command,
        "machine": machine(),
        "versions": versions(),
    }


def load() -> float:
    """Return the load average of the last minute."""
    return round(os.getloadavg()[0], 2)


def commit() -> str:
    """Return the commit of this checkout, with "+" if files other than results differ from it."""
    found = _output("git", "rev-parse", "--short=12", "HEAD")
    return (
        f"{found}{'+' if _output('git', 'status', '--porcelain', '--untracked-files=no', '--', '.', *_RESULTS) else ''}"
        if found
        else ""
    )


def machine() -> str:
    models = (line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name"))
    memory = int(next(line.split()[1] for line in _lines("/proc/meminfo") if line.startswith("MemTotal")))
    cores = len(os.sched_getaffinity(0))
    cpu = next(models, platform.machine())
    return f"{cpu}, {cores} cores, {memory / (1 << 20):.0f} GiB, Linux {platform.release().partition('-')[0]}"


def versions() -> dict[str, str]:
    """Return the versions of tools and of packages in the peers' environment; "missing" for those not installed."""
    tools = {name: _version(_output(*command)) for name, command in _TOOLS.items()}
    return {"Python": platform.python_version(), **tools, **_packages()}


def _packages() -> dict[str, str]:
    script = (
        "import json, sys, importlib.metadata as m\nprint(json.dumps({d.name: d.version for d in m.distributions()}))"
    )
    answer = _output(peers.PYTHON if Path(peers.PYTHON).exists() else "", "-c", script)
    there = {name.lower().replace("_", "-"): version for name, version in json.loads(answer or "{}").items()}
    return {name: there.get(name.replace("_", "-"), "missing") for name in peers.PACKAGES}


def _version(text: str) -> str:
    """Return the first word that begins with a digit, as in "nginx version: nginx/1.22.1"."""
    words = text.replace("/", " ").replace("v=", " ").split()
    return next((word.strip(",") for word in words if word[:1].isdigit()), "missing")


def _output(*command: str) -> str:
    path = f"{os.environ.get('PATH', '')}:/usr/sbin"
    with suppress(OSError):
        done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "PATH": path})
        return (done.stdout or done.stderr).strip() if done.returncode == 0 else ""
    return ""


def _lines(path: str) -> Sequence[str]:
    return Path(path).read_text(encoding="utf-8").splitlines()
