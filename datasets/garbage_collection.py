"""Periodic maintenance of datasets: send lost indexing hints again and delete what is no longer needed.

Each step can be interrupted: a database row that refers to bytes is deleted after the bytes.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Q

from datasets import materialization, storage_usage, tasks
from datasets.indexing import chunk_index, indexing, previews
from datasets.models import Blob, Dataset, File, Version
from datasets.states import FILLABLE, VersionState
from datasets.storage import default_storage
from datasets.storage.base import StorageError
from datasets.uploads import staging
from rbac.audit import restorations
from rbac.models import Namespace

_log = logging.getLogger(__name__)

EVERY = timedelta(minutes=5)
HINT_EVERY = timedelta(seconds=10)
# Minimum age before staged files without a row, and content that was never handed over, are removed. Younger ones may
# still be in transit.
SETTLED = timedelta(hours=1)
# Indexing a single file never takes this long.
SCRATCH_SETTLED = timedelta(days=1)


def grace() -> timedelta:
    """Return how long a deleted dataset or version can be restored."""
    return timedelta(days=settings.KEEP_DELETED_DATASETS_DAYS)


# Returns the ids of versions that other apps need, such as those of waiting and running jobs.
Needed = Callable[[], Collection[int]]


def _nobody() -> Collection[int]:
    return ()


class Maintenance:
    """Run the maintenance at most once every few minutes, however often it is called. Versions in ``needed`` are
    kept."""

    def __init__(self, needed: Needed = _nobody) -> None:
        self._needed = needed
        self._hint: datetime | None = None
        self._tidy: datetime | None = None

    def when_due(self, now: datetime) -> None:
        if self._hint is None or now >= self._hint:
            self._hint = now + HINT_EVERY
            for version_id in indexing.due():
                tasks.hint(version_id)
        if self._tidy is None or now >= self._tidy:
            self._tidy = now + EVERY
            tidy(now, self._needed())


def tidy(now: datetime, needed: Collection[int] = ()) -> None:
    """Run one round of maintenance. Versions in ``needed`` are kept, even after their grace period."""
    give_up_uploads(now - timedelta(days=settings.KEEP_UPLOADS_DAYS))
    materialization.clear(now, needed)
    purge(now - grace(), needed)
    doom(now)
    sweep_out()
    discard_orphans(now)
    clear_scratch(now)
    find_homes()
    storage_usage.repair(now)


def give_up_uploads(before: datetime) -> int:
    """Delete versions that have not been filled since ``before``. Return their number."""
    idle = Version.objects.filter(state__in=FILLABLE, touched__lt=before)
    count = 0
    for version in idle.select_related("dataset__namespace"):
        with transaction.atomic():
            count += _give_up(version, before)
    return count


def _give_up(version: Version, before: datetime) -> int:
    rows = Version.objects.filter(pk=version.pk, state__in=FILLABLE, touched__lt=before)
    if not rows.update(state=VersionState.DELETED, deleted_at=before, reserved=0):
        return 0
    version.files.filter(blob=None).delete()
    storage_usage.settle(version.dataset)
    return 1


def purge(before: datetime, needed: Collection[int] = ()) -> None:
    """Delete the rows of versions and datasets that were deleted before ``before``, and those of closed namespaces.

    Versions in ``needed`` and their datasets are kept.
    """
    versions = Version.objects.filter(state=VersionState.DELETED, deleted_at__lt=before).exclude(pk__in=needed)
    previews.forget(versions.iterator())
    versions.delete()
    gone = Dataset.objects.filter(Q(deleted_at__lt=before) | Q(namespace__closed__lt=before))
    for dataset in gone.exclude(versions__in=needed).select_related("namespace"):
        previews.forget(dataset.versions.iterator())
        with transaction.atomic():
            storage_usage.forget(dataset)
            dataset.delete()


def doom(now: datetime) -> None:
    """Mark content without files, and content that was never handed over."""
    unused = Blob.objects.filter(doomed=None, files=None)
    stale = Q(kept__isnull=False) | Q(created__lt=now - SETTLED)
    for namespace_id in unused.filter(stale).values_list("namespace_id", flat=True).distinct():
        with transaction.atomic():
            # An upload of the same content takes the same lock before it looks up the row.
            Namespace.objects.select_for_update().get(pk=namespace_id)
            unused.filter(stale, namespace_id=namespace_id).update(doomed=now)


def sweep_out() -> int:
    """Delete the marked content, then its rows. Return the number deleted."""
    count = 0
    for blob in Blob.objects.filter(doomed__isnull=False).select_related("home__namespace"):
        try:
            default_storage().delete(blob.key)
        except StorageError:
            _log.warning("%s could not be deleted; the next round tries again.", blob.key, exc_info=True)
            continue
        with transaction.atomic():
            blob.delete()
            if blob.home is not None:
                storage_usage.settle(blob.home)
        count += 1
    return count


def find_homes() -> None:
    """Assign content whose dataset was removed to another dataset that has the same content."""
    for blob in Blob.objects.filter(home=None, doomed=None, kept__isnull=False):
        file = blob.files.select_related("version__dataset__namespace").order_by("pk").first()
        if file is not None:
            with transaction.atomic():
                Blob.objects.filter(pk=blob.pk).update(home=file.version.dataset)
                storage_usage.settle(file.version.dataset)


def discard_orphans(now: datetime) -> int:
    """Delete staged data of files that no longer exist. Return their number.

    After a restoration of the database, files that it does not know are kept.
    """
    if restorations.keeps_unknown_files(now):
        return 0
    folder = default_storage().staging()
    old = {name for name, written in staging.gathered(folder) if datetime.fromtimestamp(written, UTC) < now - SETTLED}
    known = set(File.objects.filter(staging__in=old, blob=None).values_list("staging", flat=True)) if old else set()
    for name in old - known:
        staging.discard(folder, name)
    return len(old - known)


def clear_scratch(now: datetime) -> None:
    """Remove scratch directories of indexing workers that died."""
    for folder in default_storage().shelf().glob(f"{chunk_index.SCRATCH}*"):
        with contextlib.suppress(FileNotFoundError):
            if datetime.fromtimestamp(folder.stat().st_mtime, UTC) < now - SCRATCH_SETTLED:
                shutil.rmtree(folder, ignore_errors=True)
