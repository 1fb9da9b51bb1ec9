"""Content of files in the storage: rows of blobs, and their keys."""

from __future__ import annotations

from django.db import transaction

from datasets.models import Blob, File, Version
from portal.common.clock import now as wall_clock
from portal.common.rows import ensure
from rbac.models import Namespace


def stored_blob(namespace: Namespace, sha256: str, size: int) -> Blob | None:
    """Return the same content if this namespace stores it. Content of other namespaces is never revealed."""
    kept = Blob.objects.filter(namespace=namespace, kept__isnull=False, doomed=None)
    return kept.filter(sha256=sha256, size=size).first() if sha256 else None


def may_be_stored(file: File, sha256: str) -> bool:
    """Return whether the checksum, had it been announced, could have made sending unnecessary."""
    if sha256 or not file.size:
        return False
    same_size = Blob.objects.filter(namespace=file.version.dataset.namespace, size=file.size)
    return file.complete or same_size.filter(kept__isnull=False, doomed=None).exists()


def key_of(file: File, sha256: str) -> str:
    """Return the storage key of the content. Each upload has its own key, so that a deletion never affects a new
    upload."""
    return f"blobs/{file.version.dataset.namespace_id}/{sha256[:2]}/{sha256}-{file.staging.hex}"


@transaction.atomic
def create_blob(version: Version, file: File, sha256: str) -> Blob:
    File.objects.filter(pk=file.pk, blob=None).update(sha256=sha256)
    file.sha256 = sha256
    key = key_of(file, sha256)
    ensure(
        Blob,
        key=key,
        namespace=version.dataset.namespace,
        home=version.dataset,
        sha256=sha256,
        size=file.size,
        created=wall_clock(),
    )
    return Blob.objects.get(key=key)


def settle_blob(blob: Blob) -> Blob:
    """Return the blob, now marked as stored; or an equal one that was stored from another upload meanwhile."""
    if blob.kept is not None:
        return blob
    same = stored_blob(blob.namespace, blob.sha256, blob.size)
    now = wall_clock()
    if same is not None:
        Blob.objects.filter(pk=blob.pk).exclude(pk=same.pk).update(doomed=now)
        return same
    Blob.objects.filter(pk=blob.pk).update(kept=now)
    blob.kept = now
    return blob
