"""Garbage collection of files that have not been used for long.

It removes bundles and environments, which are made again on demand; the checkpoints of jobs that ended without success,
from which a retry continues until then; and the code of deleted jobs.
"""

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
from rbac.audit import restorations

_log = logging.getLogger(__name__)

EVERY = timedelta(hours=1)
_ON_ITS_WAY = timedelta(hours=1)
# Prefix of the name of a folder that is being removed.
_GOING = ".going-"


class Pruning:
    """Runs the garbage collection at most once per ``EVERY``."""

    def __init__(self) -> None:
        self._next: datetime | None = None

    def when_due(self, now: datetime) -> None:
        if self._next is None or now >= self._next:
            self._next = now + EVERY
            prune(now, timedelta(days=settings.KEEP_BUILDS_DAYS))
            forget_jobs(now, timedelta(days=settings.KEEP_CHECKPOINTS_DAYS))
            forget_code(now)


def prune(now: datetime, age: timedelta) -> int:
    """Remove bundles and environments last used longer than ``age`` ago, unless an active job needs them.

    Return the number of those removed.
    """
    wanted = set(_wanted())
    old = [folder for folder in _made() if folder not in wanted and _used(folder) < now - age]
    removed = sum(_remove(folder, now - age) for folder in old)
    if removed:
        _log.info("Removed %d bundles and environments that were not used for %d days.", removed, age.days)
    return removed


def forget_jobs(now: datetime, age: timedelta) -> int:
    """Remove the checkpoints of jobs that are deleted, have succeeded, or ended longer than ``age`` ago.

    Return the number of those jobs. After a restoration of the database, jobs that it does not know are not taken for
    deleted ones.
    """
    backend = backend_factory.current()
    kept = set(backend.checkpoint_sizes())
    if kept and restorations.keeps_unknown_files(now):
        kept = {str(pk) for pk in Job.objects.filter(pk__in=kept).values_list("pk", flat=True)}
    going = Job.objects.exclude(state=JobState.SUCCEEDED).exclude(state__in=TERMINAL, finished__lt=now - age)
    forgotten = kept - {str(pk) for pk in going.values_list("pk", flat=True)} if kept else kept
    for job_id in forgotten:
        backend.forget(job_id)
    return len(forgotten)


def forget_code(now: datetime) -> int:
    """Remove the snapshots that no job has, and return their number.

    A snapshot younger than an hour stays: its job may not be written yet.
    """
    unused = CodeSnapshot.objects.filter(created__lt=now - _ON_ITS_WAY).exclude(pk__in=Job.objects.values("snapshot"))
    return sum(_forget_snapshot(digest) for digest in list(unused.values_list("pk", flat=True)))


def _forget_snapshot(digest: str) -> bool:
    """Remove a snapshot with its file, while the row is locked. Return whether it was removed.

    A concurrent submission of the same code waits, and then stores it again.
    """
    try:
        with transaction.atomic():
            CodeSnapshot.objects.filter(pk=digest).delete()
            default_storage().delete(code_snapshots.key_of(digest))
    except (ProtectedError, StorageError):
        return False
    return True


def _made() -> Iterator[Path]:
    """Yield every bundle and environment, including what a crash left of one that was being made or removed."""
    for parent in local_bundle.directories():
        yield from parent.iterdir() if parent.is_dir() else ()


def _wanted() -> Iterator[Path]:
    rows = Job.objects.filter(state__in=ACTIVE).values_list("snapshot_id", "spec__requirements", "spec__framework")
    for digest, requirements, framework in rows:
        yield local_bundle.bundle_folder(digest)
        yield local_bundle.environment_folder(tuple(requirements or ()), framework)


def _used(folder: Path) -> datetime:
    """Return when the folder was last used or made. Return the latest time if it is removed already."""
    try:
        return datetime.fromtimestamp(folder.stat().st_mtime, UTC)
    except FileNotFoundError:
        return datetime.max.replace(tzinfo=UTC)


def _remove(folder: Path, before: datetime) -> bool:
    """Remove a folder. It is renamed first, so that no reader finds it half removed.

    A folder that was used at the last moment is renamed back. Returns whether the folder was removed.
    """
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
