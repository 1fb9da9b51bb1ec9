"""Storage usage of datasets. The only interface to the quota in this app."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import QuerySet, Sum

from datasets.models import Blob, Dataset, File, Version
from datasets.states import VersionState
from quota import storage
from quota.models import Capacity, Kind
from quota.storage import StoredObject
from rbac.access import hold_open


def hold(dataset: Dataset) -> None:
    """Lock the namespace's storage usage until the current transaction ends.

    Takes the locks of ``storage.take`` in the same order. Raises NotFound if the namespace is closed.
    """
    list(Capacity.objects.select_for_update().filter(resource="storage"))
    hold_open(dataset.namespace)


def claim(dataset: Dataset, size: int) -> None:
    """Count ``size`` more bytes for the dataset before they arrive. Raises QuotaExceeded.

    Call it in the transaction that records what they are for.
    """
    hold(dataset)
    if size:
        storage.take(dataset.namespace, stored_object(dataset), size)


def settle(dataset: Dataset) -> None:
    """Update the recorded usage of the dataset. Call it in the transaction that changed it."""
    storage.measured(stored_object(dataset), held_by(dataset))


def repair(now: datetime) -> int:
    """Recompute the usage of all datasets. Return the number of corrected ones."""
    with transaction.atomic():
        actual = {stored_object(one): held_by(one) for one in Dataset.objects.select_related("namespace")}
    return storage.repair(Kind.DATASETS, actual, now)


def forget(dataset: Dataset) -> None:
    """Remove the usage record of a dataset that is being deleted."""
    storage.forget(stored_object(dataset))


def stored_object(dataset: Dataset) -> StoredObject:
    """Return the dataset as an item of the quota."""
    return StoredObject(dataset.namespace_id, Kind.DATASETS, str(dataset.pk), dataset.full_name)


def held_by(dataset: Dataset) -> int:
    """Return the bytes of the content assigned to the dataset, of files being received, and of reserved space."""
    blobs = Blob.objects.filter(home=dataset, kept__isnull=False)
    files = File.objects.filter(version__dataset=dataset, blob=None)
    versions = Version.objects.filter(dataset=dataset).exclude(state=VersionState.DELETED)
    return _sum(blobs, "size") + _sum(files, "size") + _sum(versions, "reserved")


def _sum(rows: QuerySet[Any], name: str) -> int:
    return rows.aggregate(sum=Sum(name))["sum"] or 0
