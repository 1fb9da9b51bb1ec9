"""How much datasets take of a namespace's storage. The seam to the quota: nothing else here knows of limits."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import QuerySet, Sum

from datasets.models import Blob, Dataset, File, Version
from datasets.states import VersionState
from quota import storage
from quota.models import Capacity, Kind
from quota.storage import Thing
from rbac.access import hold_open


def hold(dataset: Dataset) -> None:
    """Nobody else changes what the namespace keeps until the present transaction ends: the locks of ``storage.take``,
    in its order. Raises NotFound where the namespace has been closed."""
    list(Capacity.objects.select_for_update().filter(resource="storage"))
    hold_open(dataset.namespace)


def claim(dataset: Dataset, size: int) -> None:
    """Count that many bytes more for the dataset, before they come. Raises QuotaExceeded. Within the transaction that
    writes down what they are for."""
    hold(dataset)
    if size:
        storage.take(dataset.namespace, thing(dataset), size)


def settle(dataset: Dataset) -> None:
    """Count what the dataset keeps now. Within the transaction that changed it."""
    storage.measured(thing(dataset), held_by(dataset))


def repair(now: datetime) -> int:
    """Count all datasets anew; how many had been counted wrong."""
    with transaction.atomic():
        actual = {thing(one): held_by(one) for one in Dataset.objects.select_related("namespace")}
    return storage.repair(Kind.DATASETS, actual, now)


def forget(dataset: Dataset) -> None:
    """The dataset is being removed."""
    storage.forget(thing(dataset))


def thing(dataset: Dataset) -> Thing:
    """The dataset as the quota knows it."""
    return Thing(dataset.namespace_id, Kind.DATASETS, str(dataset.pk), dataset.full_name)


def held_by(dataset: Dataset) -> int:
    """Bytes of the content that is counted for it, of what it is receiving, and of what it has asked for."""
    blobs = Blob.objects.filter(home=dataset, kept__isnull=False)
    files = File.objects.filter(version__dataset=dataset, blob=None)
    versions = Version.objects.filter(dataset=dataset).exclude(state=VersionState.DELETED)
    return _sum(blobs, "size") + _sum(files, "size") + _sum(versions, "reserved")


def _sum(rows: QuerySet[Any], name: str) -> int:
    return rows.aggregate(sum=Sum(name))["sum"] or 0
