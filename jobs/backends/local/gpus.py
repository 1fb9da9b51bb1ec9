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

    A replica that has given its GPUs back gets others, because another attempt may have them now. Callers hold the lock
    of the backend's ports, so that no two choose the same GPU. Raises LaunchFailed if too few are free, and OSError.
    """
    assigned = of(attempt)
    lacking = [one for one in replicas if one.gpu and (one.name not in assigned or gave_back(attempt, one.name))]
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
    """Return the variable that limits a process with user code to its GPUs; none where the machine has no GPU.

    Raises LaunchFailed if the replica requests GPUs and has none: its program would run without them.
    """
    assigned = of(attempt).get(replica.name, [])
    if replica.gpu and not assigned:
        raise LaunchFailed(messages.GPUS_TAKEN(count=replica.gpu, free=0, total=len(present)), retryable=True)
    if not present or not replica.runs_user_code:
        return {}
    return {contract.GPUS: ",".join(map(str, assigned))}


def gave_back(attempt: Path, name: str) -> bool:
    """Return whether the replica was requested to stop and its agent is gone."""
    stopped = any((place / contract.STOP_FILE).exists() for place in (attempt, attempt / name))
    return stopped and not contract.is_locked(attempt / name)


def _in_use(path: Path) -> Iterator[int]:
    """Yield the GPUs of an attempt's replicas, except for those that gave them back."""
    for name, minors in of(path.parent).items():
        if not gave_back(path.parent, name):
            yield from minors
