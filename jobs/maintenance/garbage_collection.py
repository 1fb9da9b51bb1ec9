"""Removes what nobody has used for long: bundles and environments, which whoever needs them again has made again, the
checkpoints of jobs that ended without success, which until then could be run again from there, and the code of jobs
that were deleted."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from django.conf import settings
from django.db import transaction
from django.db.models import ProtectedError

from datasets.storage import default_storage
from datasets.storage.base import StorageError
from jobs.backends import factory as backend_factory
from jobs.builds import code_snapshots, local_bundle
from jobs.lifecycle.states import ACTIVE, TERMINAL, JobState
from jobs.models import CodeSnapshot, Job

_log = logging.getLogger(__name__)

EVERY = timedelta(hours=1)
_ON_ITS_WAY = timedelta(hours=1)
# Before the name of a folder that is being removed.
_GOING = ".going-"


class Pruning:
    """Looks at most every hour, however often it is asked."""

    def __init__(self) -> None:
        self._next: datetime | None = None

    def when_due(self, now: datetime) -> None:
        if self._next is None or now >= self._next:
            self._next = now + EVERY
            prune(now, timedelta(days=settings.KEEP_BUILDS_DAYS))
            forget_jobs(now, timedelta(days=settings.KEEP_CHECKPOINTS_DAYS))
            forget_code(now)


def prune(now: datetime, age: timedelta) -> int:
    """Remove what was last used longer than ``age`` ago and is not wanted by a job that waits or runs; how many."""
    wanted = set(_wanted())
    old = [folder for folder in _made() if folder not in wanted and _used(folder) < now - age]
    removed = sum(_remove(folder, now - age) for folder in old)
    if removed:
        _log.info("Removed %d bundles and environments that were not used for %d days.", removed, age.days)
    return removed


def forget_jobs(now: datetime, age: timedelta) -> int:
    """Remove what is kept of jobs that are no more, have succeeded, or ended longer than ``age`` ago; how many."""
    backend = backend_factory.current()
    kept = set(backend.checkpoint_sizes())
    going = Job.objects.exclude(state=JobState.SUCCEEDED).exclude(state__in=TERMINAL, finished__lt=now - age)
    forgotten = kept - {str(pk) for pk in going.values_list("pk", flat=True)} if kept else kept
    for job_id in forgotten:
        backend.forget(job_id)
    return len(forgotten)


def forget_code(now: datetime) -> int:
    """Remove the snapshots that no job has, but those of a moment ago: their job may be on its way; how many."""
    unused = CodeSnapshot.objects.filter(created__lt=now - _ON_ITS_WAY).exclude(pk__in=Job.objects.values("snapshot"))
    return sum(_forget_snapshot(digest) for digest in list(unused.values_list("pk", flat=True)))


def _forget_snapshot(digest: str) -> bool:
    """The file goes while the row is locked: whoever submits the same code now waits, and then keeps it anew."""
    try:
        with transaction.atomic():
            CodeSnapshot.objects.filter(pk=digest).delete()
            default_storage().delete(code_snapshots.key_of(digest))
    except (ProtectedError, StorageError):
        return False
    return True


def _made() -> Iterator[Path]:
    """Every bundle and environment, and what a crash has left of one that was being made or removed."""
    for parent in local_bundle.rooms():
        yield from parent.iterdir() if parent.is_dir() else ()


def _wanted() -> Iterator[Path]:
    rows = Job.objects.filter(state__in=ACTIVE).values_list("snapshot_id", "spec__requirements", "spec__framework")
    for digest, requirements, framework in rows:
        yield local_bundle.bundle_folder(digest)
        yield local_bundle.environment_folder(tuple(requirements or ()), framework)


def _used(folder: Path) -> datetime:
    """When it was last used or made; now, as it were, where it is gone already."""
    try:
        return datetime.fromtimestamp(folder.stat().st_mtime, UTC)
    except FileNotFoundError:
        return datetime.max.replace(tzinfo=UTC)


def _remove(folder: Path, before: datetime) -> bool:
    """Out of the way first, so that nobody finds half of it. Who used it at the last moment gets it back."""
    going = folder if folder.name.startswith(_GOING) else folder.with_name(f"{_GOING}{folder.name}")
    try:
        folder.replace(going)
        if _used(going) >= before:
            going.replace(folder)
            return False
    except OSError:
        return False
    shutil.rmtree(going, ignore_errors=True)
    return True
