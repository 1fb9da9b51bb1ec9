"""Ports of the processes of an attempt in its file, and their addresses for the peers."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from jobs.backends.base import LaunchPlan
from jobs.backends.local import ports
from jobs.frameworks.paddle import Endpoint
from jobs.frameworks.peer_env import PORTS, Environments, environments

PORTS_FILE = "ports.json"
PORTS_LOCK = "ports.lock"


def peer_environments(attempt: Path, plan: LaunchPlan) -> Environments:
    """Return the environment variables with the addresses of the peers, for each process of the plan."""
    if plan.framework not in PORTS:
        return {}
    first = json.loads((attempt / PORTS_FILE).read_text(encoding="utf-8"))
    here = (replica for replica in plan.replicas if replica.name in first)
    return environments(plan.framework, {(one.role, one.index): Endpoint(ports.HOST, first[one.name]) for one in here})


def ports_in(path: Path) -> Iterator[int]:
    """Yield all ports assigned to an attempt; none of an attempt that is just being removed."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for first in json.loads(path.read_text(encoding="utf-8")).values():
            yield from range(first, first + max(PORTS.values()))
