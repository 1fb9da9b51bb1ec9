"""What an attempt's agents are given where they do not see the portal's files: their numbers, the code, the data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jobs.builds import code_snapshots
from jobs.lifecycle.states import JobState
from jobs.models import Attempt, Replica
from jobs.models.streams import Source
from jobs.selectors import attempts
from portal.common.errors import NotFound, StaleAttempt

_KINDS = ("logs", "metrics", "events")
_GOING = (JobState.LAUNCHING, JobState.REGISTERING, JobState.RUNNING)


def numbers(attempt: Attempt, replica: str) -> Mapping[str, int]:
    """How many entries of each kind were taken of the replica, in all its lives.

    Raises StaleAttempt where it is to stop before it has begun: the signal that asked it to may have come too early for
    it.
    """
    leaving = Replica.objects.filter(attempt=attempt, name=replica, dismissed=True).exists()
    if leaving or attempt.job.state not in _GOING:
        raise StaleAttempt("Nothing is begun in this attempt any more.", attempt=attempt.job.attempt)
    taken = dict(Source.objects.filter(attempt=attempt, replica=replica).values_list("kind", "last"))
    return {kind: int(taken.get(kind, 0)) for kind in _KINDS}


def grace(attempt: Attempt) -> float:
    """How many seconds a replica has to end that was asked to just now."""
    return attempts.grace_of(attempt.job).total_seconds()


def code(attempt: Attempt) -> bytes:
    """A tar of the job's files. Raises KeyNotFound, StorageError."""
    return code_snapshots.archive(code_snapshots.files_of(attempt.job.snapshot))


def data_files(attempt: Attempt) -> list[dict[str, Any]]:
    """The files of the job's dataset as ``path`` below the data path and ``size``. None where the job has none."""
    found = _folder_of(attempt)
    if found is None:
        return []
    files = (path for path in sorted(found.folder.rglob("*")) if path.is_file())
    return [{"path": path.relative_to(found.root).as_posix(), "size": path.stat().st_size} for path in files]


def data_file(attempt: Attempt, wanted: str) -> Path:
    """One of ``data_files``, without a look at the others: they may be many, and each is asked for. Raises NotFound."""
    found = _folder_of(attempt)
    if found is not None:
        path = found.root / wanted
        if ".." not in path.parts and path.is_relative_to(found.folder) and path.is_file():
            return path
    raise NotFound("The job's dataset has no such file.")


class _Place(NamedTuple):
    root: Path
    folder: Path


def _folder_of(attempt: Attempt) -> _Place | None:
    """Where the job's dataset is, if it has one. Of the roots that have it by its name the first counts, as for those
    who read it."""
    plain = str(attempt.job.spec.get("dataset") or "").partition("@")[0]
    roots = attempts.data_roots(attempt.job) if plain else ()
    return next((_Place(root, root / plain) for root in roots if (root / plain).is_dir()), None)
