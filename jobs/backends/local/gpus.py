"""GPUs of this machine that the replicas of an attempt use. Each GPU belongs to one replica at a time."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from jobs.backends.base import LaunchFailed, ReplicaPlan
from jobs.backends.local.plan_files import write_private
from jobs.messages import cluster as messages
from runtime import contract

GPUS_FILE = "gpus.json"


def assign(attempts: Path, attempt: Path, replicas: Iterable[ReplicaPlan], present: list[int]) -> None:
    """Write which GPUs the replicas use (minor numbers by replica name). Replicas that have some already keep them.

    Callers hold the lock of the backend's ports, so that no two choose the same GPU. Raises LaunchFailed if too few are
    free, and OSError.
    """
    assigned = of(attempt)
    lacking = [one for one in replicas if one.gpu and one.name not in assigned]
    if not lacking:
        return
    wanted = sum(one.gpu for one in lacking)
    taken = {minor for path in attempts.glob(f"*/{GPUS_FILE}") for minor in _in_use(path)}
    free = [minor for minor in present if minor not in taken]
    if wanted > len(free):
        if wanted > len(present):
            raise LaunchFailed(messages.GPUS_MISSING(count=wanted, total=len(present)))
        raise LaunchFailed(messages.GPUS_TAKEN(count=wanted, free=len(free), total=len(present)), retryable=True)
    for one in lacking:
        assigned[one.name], free = free[: one.gpu], free[one.gpu :]
    write_private(attempt / GPUS_FILE, json.dumps(assigned))


def of(attempt: Path) -> dict[str, list[int]]:
    """Return the GPUs of the attempt's replicas; none of an attempt that is just being removed."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        found: dict[str, list[int]] = json.loads((attempt / GPUS_FILE).read_text(encoding="utf-8"))
        return found
    return {}


def variables(attempt: Path, replica: ReplicaPlan, present: list[int]) -> dict[str, str]:
    """Return the variable that limits a process with user code to its GPUs; none where the machine has no GPU."""
    if not present or not replica.runs_user_code:
        return {}
    return {contract.GPUS: ",".join(map(str, of(attempt).get(replica.name, [])))}


def _in_use(path: Path) -> Iterator[int]:
    """Yield the GPUs of an attempt's replicas, except for those that were requested to stop and whose agent is gone."""
    attempt = path.parent
    for name, minors in of(attempt).items():
        stopped = any((place / contract.STOP_FILE).exists() for place in (attempt, attempt / name))
        if not stopped or contract.is_locked(attempt / name):
            yield from minors
