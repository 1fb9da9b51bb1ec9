"""What an attempt's agents are given where they do not see the portal's files: their numbers, the code, the data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jobs import effects, snapshots
from jobs.models import Attempt, Replica
from jobs.states import JobState
from jobs.streams.models import Source
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


def code(attempt: Attempt) -> bytes:
    """A tar of the job's files. Raises KeyNotFound, StorageError."""
    return snapshots.archive(snapshots.files_of(attempt.job.snapshot))


def data_files(attempt: Attempt) -> list[dict[str, Any]]:
    """The files of the job's data set as ``path`` below the data path and ``size``. None where the job has none."""
    return [
        {"path": path.relative_to(root).as_posix(), "size": path.stat().st_size} for root, path in _files_of(attempt)
    ]


def data_file(attempt: Attempt, wanted: str) -> Path:
    """One of ``data_files``. Raises NotFound."""
    for root, path in _files_of(attempt):
        if path.relative_to(root).as_posix() == wanted:
            return path
    raise NotFound("The job's data set has no such file.")


def _files_of(attempt: Attempt) -> Iterator[tuple[Path, Path]]:
    """Root and file. Of the roots that have the data set by its name the first counts, as for those who read it."""
    plain = str(attempt.job.spec.get("dataset") or "").partition("@")[0]
    roots = effects.data_roots(attempt.job) if plain else ()
    for root in roots:
        folder = root / plain
        if folder.is_dir():
            yield from ((root, path) for path in sorted(folder.rglob("*")) if path.is_file())
            return
