"""Data that agents download if they do not share the portal's files: their last numbers, the code and the dataset."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jobs.builds import code_snapshots
from jobs.lifecycle.states import JobState
from jobs.messages import jobs as messages
from jobs.models import Attempt, Replica
from jobs.models.streams import Source
from jobs.selectors import attempts
from jobs.services import replica_reports
from jobs.streams import store
from portal.common.errors import NotFound, StaleAttempt

_KINDS = ("logs", "metrics", "events")
_GOING = (JobState.LAUNCHING, JobState.REGISTERING, JobState.RUNNING)


def numbers(attempt: Attempt, replica: str, start_number: int | None = None) -> Mapping[str, int]:
    """Return how many entries of each kind were stored for the replica, over all its starts.

    Afterwards no start before ``start_number`` writes. Raises StaleAttempt if the replica must stop before it has
    begun: the signal to stop may have arrived before the replica could handle it. Raises as ``fencing.check`` does.
    """
    leaving = Replica.objects.filter(attempt=attempt, name=replica, dismissed=True).exists()
    if leaving or attempt.job.state not in _GOING:
        raise StaleAttempt(messages.ATTEMPT_STARTS_NOTHING(), attempt=attempt.job.attempt)
    if start_number is not None:
        events = replica_reports.take_over_events(attempt, replica=replica, start_number=start_number)
        return {**store.take_over(attempt, replica, start_number), "events": events}
    taken = dict(Source.objects.filter(attempt=attempt, replica=replica).values_list("kind", "last"))
    return {kind: int(taken.get(kind, 0)) for kind in _KINDS}


def grace(attempt: Attempt) -> float:
    """Return the grace period, in seconds, of a replica that must stop now."""
    return attempts.stop_grace(attempt.job).total_seconds()


def code(attempt: Attempt) -> bytes:
    """Return a tar of the job's files. Raises KeyNotFound, StorageError."""
    return code_snapshots.archive(code_snapshots.files_of(attempt.job.snapshot))


def data_files(attempt: Attempt) -> list[dict[str, Any]]:
    """Return the files of the job's dataset, each as ``path`` below the data path and ``size``.

    The list is empty if the job has no dataset.
    """
    found = _folder_of(attempt)
    if found is None:
        return []
    files = (path for path in sorted(found.folder.rglob("*")) if path.is_file())
    return [{"path": path.relative_to(found.root).as_posix(), "size": path.stat().st_size} for path in files]


def data_file(attempt: Attempt, wanted: str) -> Path:
    """Return one of ``data_files``, without listing the others, which may be many. Raises NotFound."""
    found = _folder_of(attempt)
    if found is not None:
        path = found.root / wanted
        if ".." not in path.parts and path.is_relative_to(found.folder) and path.is_file():
            return path
    raise NotFound(messages.JOB_DATASET_FILE_NOT_FOUND())


class _Place(NamedTuple):
    root: Path
    folder: Path


def _folder_of(attempt: Attempt) -> _Place | None:
    """Return the directory of the job's dataset, if it has one.

    Of the roots that contain the name, the first is used, as by the readers of the dataset.
    """
    plain = str(attempt.job.spec.get("dataset") or "").partition("@")[0]
    roots = attempts.data_roots(attempt.job) if plain else ()
    return next((_Place(root, root / plain) for root in roots if (root / plain).is_dir()), None)
