"""The cgroups of replicas on this machine.

A file stores the path of each, so that its processes are ended after any crash of the portal or of an agent.
"""

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
    """Make the cgroup for a start of the replica, and end the one of an earlier start. Raises OSError.

    ``directory`` is the replica's, inside its attempt's. Limits apply to processes with user code; processes of the
    platform are only measured.
    """
    end(directory)
    if home is None:
        return
    path = home.path / f"{directory.parent.name}.{directory.name}.{start_number}"
    # The file first: a crash between the steps must not leave a cgroup without its file.
    (directory / CGROUP_FILE).write_text(str(path), encoding="utf-8")
    limits = (replica.memory, replica.processes) if replica.runs_user_code else (0, 0)
    cgroup.make(path, *limits, home.controllers)


def variables(directory: Path) -> dict[str, str]:
    """Return the environment variable with the replica's cgroup for its agent."""
    path = _path(directory)
    return {} if path is None else {contract.CGROUP: str(path)}


def end(directory: Path) -> None:
    """Kill all processes of the replica's cgroup and remove it. On failure a later call or the next start retries."""
    path = _path(directory)
    if path is None:
        return
    try:
        cgroup.end(path)
        (directory / CGROUP_FILE).unlink(missing_ok=True)
    except OSError as error:
        _log.warning("The cgroup %s could not be ended. %s", path, error)


def known(attempts: Path) -> set[str]:
    """Return the names of the cgroups that belong to a replica of an attempt."""
    paths = (_path(file.parent) for file in attempts.glob(f"*/*/{CGROUP_FILE}"))
    return {path.name for path in paths if path is not None}


def _path(directory: Path) -> Path | None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        # Empty if the disk was full after the file was created.
        if text := (directory / CGROUP_FILE).read_text(encoding="utf-8"):
            return Path(text)
    return None
