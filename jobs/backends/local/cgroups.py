"""The cgroups of replicas on this machine. The path of each is in a file, so that what is in it is ended after any
crash of the portal or of an agent."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path

from jobs.backends.base import ReplicaPlan
from runtime import contract
from runtime.isolation import cgroup
from runtime.isolation.delegation import Home

_log = logging.getLogger(__name__)

CGROUP_FILE = "cgroup"


def make(home: Home | None, directory: Path, replica: ReplicaPlan, start_number: int) -> None:
    """Make that of another life of the replica, whose directory is in its attempt's; the one of an earlier life is
    ended. Limits are for processes that run user code: the platform's own are measured alone. Raises OSError."""
    end(directory)
    if home is None:
        return
    path = home.path / f"{directory.parent.name}.{directory.name}.{start_number}"
    # The file first: of two steps the second may not happen.
    (directory / CGROUP_FILE).write_text(str(path), encoding="utf-8")
    limits = (replica.memory, replica.processes) if replica.runs_user_code else (0, 0)
    cgroup.make(path, *limits, home.controllers)


def variables(directory: Path) -> dict[str, str]:
    """How the replica's agent is told."""
    path = _path(directory)
    return {} if path is None else {contract.CGROUP: str(path)}


def end(directory: Path) -> None:
    """End the replica's cgroup and all that is in it. Where that cannot be, another call or the next start may."""
    path = _path(directory)
    if path is None:
        return
    try:
        cgroup.end(path)
        (directory / CGROUP_FILE).unlink(missing_ok=True)
    except OSError as error:
        _log.warning("The cgroup %s could not be ended. %s", path, error)


def known(attempts: Path) -> set[str]:
    """The names of those that belong to a replica of an attempt."""
    paths = (_path(file.parent) for file in attempts.glob(f"*/*/{CGROUP_FILE}"))
    return {path.name for path in paths if path is not None}


def _path(directory: Path) -> Path | None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        # Empty where the disk took the file but not what was to be in it.
        if text := (directory / CGROUP_FILE).read_text(encoding="utf-8"):
            return Path(text)
    return None
