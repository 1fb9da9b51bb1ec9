"""Completion of an upload: freeze it, verify its checksum, and hand its content to the storage.

All calls tolerate repetition and delay.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path

from django.db import transaction

from datasets import manifest, messages, storage_usage
from datasets.errors import ChecksumMismatch, Incomplete
from datasets.manifest import Parts
from datasets.models import File, Version
from datasets.selectors import file_for, version_for
from datasets.services import fill, locked
from datasets.storage import default_storage
from datasets.storage.base import StorageError
from datasets.uploads import staging
from datasets.uploads.content import create_blob, settle_blob
from datasets.uploads.parts import gathering_of, marks_of, numbers_of
from datasets.uploads.upload_states import WRITE, Place, is_handed_over, start_over, unfreeze
from datasets.uploads.upload_verification import READINGS
from portal.common.errors import NotFound, ValidationFailed
from rbac.models import User

MISSING_LIMIT = 1000  # maximum number of parts that an error lists
# Below the usual timeout of a proxy: clients that complete a large file repeat the request.
ANSWER_SECONDS = 20.0


@dataclass(frozen=True)
class Completed:
    """Result of ``complete``. ``checked`` bytes have been read again; while that is not all, the caller must repeat the
    call."""

    file: File
    checked: int


def complete(*, actor: User, place: Place, file_id: int, sha256: str, seconds: float = ANSWER_SECONDS) -> Completed:
    """Complete a file: verify the checksum of the staged bytes and hand them to the storage.

    Raises NotFound, Forbidden, Conflict, ValidationFailed, Incomplete with the ``missing`` parts, ChecksumMismatch (the
    staged bytes are then discarded), StorageError.
    """
    version = version_for(actor, place.ns, place.name, place.number, WRITE)
    file = file_for(actor, version, file_id)
    if not manifest.is_digest(sha256):
        raise ValidationFailed({"sha256": [messages.FILE_SHA256_REQUIRED()]})
    if file.complete:
        return _completed_before(file, sha256)
    missing = _missing(file)
    if missing:
        file.refresh_from_db()
        if file.complete:  # another request was faster
            return _completed_before(file, sha256)
        raise missing
    File.objects.filter(pk=file.pk).update(frozen=True)
    found, checked = _content_of(file, seconds)
    if not found:
        return Completed(file, checked)
    if found != sha256:
        with transaction.atomic():
            start_over(file)
        raise _mismatch(file, found)
    return Completed(_store(version, file, found), file.size)


def _completed_before(file: File, sha256: str) -> Completed:
    if file.sha256 != sha256:
        raise _mismatch(file, file.sha256)
    return Completed(file, file.size)


def _mismatch(file: File, found: str) -> ChecksumMismatch:
    return ChecksumMismatch(
        messages.FILE_CHECKSUM_MISMATCH(path=f"{file.path!r}"),
        sha256=found,
    )


def _missing(file: File) -> Incomplete | None:
    """Return the error for a file with missing parts, or None."""
    there = set(numbers_of(file))
    missing = Parts(file.size, file.part_size).missing(there)
    if not missing:
        return None
    return Incomplete(
        messages.PARTS_MISSING(missing=len(missing), count=len(missing) + len(there), path=f"{file.path!r}"),
        missing=missing[:MISSING_LIMIT],
    )


def _content_of(file: File, seconds: float) -> tuple[str, int]:
    """Return the checksum of the staged bytes and the number of bytes read; an empty checksum while that continues.

    The file must be frozen. Raises Incomplete, StorageError.
    """
    folder = default_storage().staging()
    if is_handed_over(file, folder):  # an interrupted or concurrent call got this far
        return file.sha256, file.size
    if file.size == 0:
        staging.make_empty(folder, file.staging)
    staging.settle(folder, file.staging)  # a part may still be being written
    try:
        found = READINGS.finish(gathering_of(file), _marks_of_all(file), seconds)
        _refuse_vanished(file, folder)
    except (StorageError, Incomplete):
        file.refresh_from_db()
        if is_handed_over(file, folder):
            return file.sha256, file.size
        unfreeze(file, folder)
        raise
    return found.sha256, found.done


def _refuse_vanished(file: File, folder: Path) -> None:
    """Raise StorageError if the staging file is missing: it may have been read long before it was lost."""
    if not staging.path_of(folder, file.staging).exists():
        raise StorageError(messages.PARTS_UNREADABLE(why=os.strerror(errno.ENOENT)))


def _marks_of_all(file: File) -> list[int]:
    """Return the marks of all parts. Raises Incomplete if a part was about to be replaced and its new bytes never
    came."""
    marks = marks_of(file)
    if len(marks) < Parts(file.size, file.part_size).count:
        raise _missing(file) or Incomplete(messages.PARTS_CHANGED(path=f"{file.path!r}"), missing=[])
    return marks


def _store(version: Version, file: File, sha256: str) -> File:
    """Hand the content to the storage. Its row exists before that and is linked to the file afterwards."""
    blob = create_blob(version, file, sha256)
    storage = default_storage()
    storage.adopt(blob.key, staging.path_of(storage.staging(), file.staging), sha256)
    with transaction.atomic():
        storage_usage.hold(version.dataset)
        fill(locked(version))
        # Content is assigned to files under the lock of their version.
        found = File.objects.filter(pk=file.pk).first()
        if found is None:
            raise NotFound(messages.FILE_REMOVED_DURING_UPLOAD(path=f"{file.path!r}"))
        if found.blob_id is None:
            found.blob, found.sha256 = settle_blob(blob), sha256
            found.save(update_fields=["blob", "sha256"])
            found.parts.all().delete()
            storage_usage.settle(version.dataset)
    found.version = version
    return found
