"""Uploads of files into a version: announce, receive parts, complete. All calls tolerate repetition and delay."""

from __future__ import annotations

import errno
import os
import uuid
from dataclasses import dataclass
from pathlib import Path

from django.db import transaction

from datasets import manifest, messages, storage_usage
from datasets.checksums import Checksum
from datasets.errors import ChecksumMismatch, Exists, Incomplete, WrongLength
from datasets.manifest import Parts
from datasets.models import Blob, File, Part, Version
from datasets.selectors import file_for, version_for
from datasets.services import fill, locked
from datasets.storage import default_storage
from datasets.storage.base import StorageError
from datasets.uploads import staging
from datasets.uploads.upload_verification import READINGS, Gathering
from portal.common.clock import now as wall_clock
from portal.common.errors import Conflict, NotFound, TooLarge, ValidationFailed
from portal.common.rows import ensure
from rbac.audit import log as audit_log
from rbac.models import Namespace, User
from rbac.scopes import Scope

FILES_LIMIT = 200_000  # maximum number of files of a version
MISSING_LIMIT = 1000  # maximum number of parts that an error lists
# Below the usual timeout of a proxy: clients that complete a large file repeat the request.
ANSWER_SECONDS = 20.0
_WRITE = Scope.DATASET_WRITE


@dataclass(frozen=True)
class Place:
    """Version as named in a URL."""

    ns: str
    name: str
    number: int


# --- Announcement ----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Announced:
    """Result of ``announce``.

    ``created`` is False if the file was announced before and the upload continues. ``hash_first``: the file was
    announced without a checksum and its content may be stored already; with the checksum the portal could tell.
    """

    file: File
    created: bool
    hash_first: bool = False


def announce(*, actor: User, place: Place, path: str, size: int, sha256: str = "") -> Announced:
    """Announce a file. Content that the namespace already stores, by ``sha256``, need not be sent.

    Raises NotFound, Forbidden, Conflict, ValidationFailed, Exists if the path is taken, QuotaExceeded.
    """
    wanted = _checked(path, size, sha256)
    version = version_for(actor, place.ns, place.name, place.number, _WRITE)
    with transaction.atomic():
        # Lock the namespace before the version, always in this order, to avoid a deadlock.
        storage_usage.hold(version.dataset)
        version = locked(version)
        fill(version)
        earlier = version.files.filter(folded=manifest.folded(wanted)).select_related("blob").first()
        if earlier is not None:
            earlier.version = version
            file = _resumed(earlier, wanted, size, sha256)
            return Announced(file, created=False, hash_first=_may_be_kept(file, sha256))
        _refuse_crossing(version, wanted)
        known = _stored_blob(version.dataset.namespace, sha256, size)
        if known is None:
            _reserve(version, size)
        file = File.objects.create(
            version=version,
            path=wanted,
            folded=manifest.folded(wanted),
            size=size,
            part_size=manifest.part_size_for(size),
            sha256=sha256,
            blob=known,
            created=wall_clock(),
        )
    return Announced(file, created=True, hash_first=_may_be_kept(file, sha256))


def _checked(path: str, size: int, sha256: str) -> str:
    errors: dict[str, list[str]] = {}
    try:
        path = manifest.normalise(path)
    except manifest.BadPath as error:
        errors["path"] = [str(error)]
    if not 0 <= size <= manifest.LARGEST_FILE:
        errors["size"] = [messages.FILE_SIZE_INVALID(most=manifest.LARGEST_FILE)]
    if sha256 and not manifest.is_digest(sha256):
        errors["sha256"] = [messages.SHA256_INVALID()]
    if errors:
        raise ValidationFailed(errors)
    return path


def _resumed(file: File, path: str, size: int, sha256: str) -> File:
    """Return the file that was announced before, if it is the same. Raises Exists if it is not."""
    other_content = bool(sha256 and file.sha256 and sha256 != file.sha256)
    if file.path != path or file.size != size or (file.complete and other_content):
        raise Exists(
            messages.FILE_EXISTS(number=file.version.number, path=f"{file.path!r}", size=file.size),
            id=file.pk,
        )
    if other_content:  # the file was changed: parts of the old content are invalid
        start_over(file)
    if sha256 and not file.complete:
        file.sha256 = sha256
        file.blob = _stored_blob(file.version.dataset.namespace, sha256, size)
        file.save(update_fields=["sha256", "blob"])
    return file


def _refuse_crossing(version: Version, path: str) -> None:
    """Refuse a path that would make a name both a file and a folder. Raises Exists, ValidationFailed."""
    folders = manifest.ancestors(path)
    crossed = (
        version.files.filter(folded__in=folders).first()
        or version.files.filter(folded__startswith=manifest.folded(path) + "/").first()
    )
    if crossed is not None:
        raise Exists(messages.FILE_FOLDER_CONFLICT(path=f"{path!r}", other=f"{crossed.path!r}"), id=crossed.pk)
    if version.files.count() >= FILES_LIMIT:
        raise ValidationFailed({"path": [messages.VERSION_FILE_LIMIT(most=FILES_LIMIT)]})


def _stored_blob(namespace: Namespace, sha256: str, size: int) -> Blob | None:
    """Return the same content if this namespace stores it. Content of other namespaces is never revealed."""
    kept = Blob.objects.filter(namespace=namespace, kept__isnull=False, doomed=None)
    return kept.filter(sha256=sha256, size=size).first() if sha256 else None


def _may_be_kept(file: File, sha256: str) -> bool:
    """Return whether the checksum, had it been announced, could have made sending unnecessary."""
    if sha256 or not file.size:
        return False
    same_size = Blob.objects.filter(namespace=file.version.dataset.namespace, size=file.size)
    return file.complete or same_size.filter(kept__isnull=False, doomed=None).exists()


def _reserve(version: Version, size: int) -> None:
    """Take the space for a file from the version's reservation, the rest from the namespace's quota."""
    drawn = min(size, version.reserved)
    storage_usage.claim(version.dataset, size - drawn)
    version.reserved -= drawn
    version.save(update_fields=["reserved"])


# --- Parts -----------------------------------------------------------------------------------------------------------
def receive_part(
    *, actor: User, place: Place, file_id: int, number: int, checksum: Checksum, length: int | None, body: staging.Body
) -> list[int]:
    """Receive one part from ``body``. Return the numbers of the parts that are there.

    No transaction is open while bytes arrive. Raises NotFound, Forbidden, Conflict, ValidationFailed, WrongLength,
    TooLarge, CutOff, ChecksumMismatch, StorageFull.
    """
    version = version_for(actor, place.ns, place.name, place.number, _WRITE)
    file = file_for(actor, version, file_id)
    span = _span(file, number)
    _refuse_length(number, length, span[1])
    if file.complete:
        return numbers_of(file)
    if not _is_there(file, number, checksum):
        placing = staging.Placing(
            vacant=lambda: _is_vacant(file, number),
            allow=lambda: _may_be_placed(file, number, checksum),
            note=lambda: _record_part(version, file, number, checksum),
        )
        folder = default_storage().staging()
        staging.take_part(folder, file.staging, body, span=span, checksum=checksum, by=placing)
        _hash_in_background(file, number)
    return numbers_of(file)


def _is_there(file: File, number: int, checksum: Checksum) -> bool:
    return file.parts.filter(number=number, checksum=checksum.text).exists()


def _span(file: File, number: int) -> tuple[int, int]:
    parts = Parts(file.size, file.part_size)
    try:
        return parts.span(number)
    except LookupError:
        raise NotFound(messages.PART_NOT_FOUND(path=f"{file.path!r}", count=parts.count, number=number)) from None


def _refuse_length(number: int, length: int | None, wanted: int) -> None:
    if length is not None and length > wanted:
        raise TooLarge(messages.PART_SIZE_MISMATCH(number=number, size=wanted, count=length))
    if length is not None and length < wanted:
        raise WrongLength(messages.PART_SIZE_MISMATCH(number=number, size=wanted, count=length))


def _is_vacant(file: File, number: int) -> bool:
    """Return whether the part may be written and is not recorded."""
    gathers = File.objects.filter(pk=file.pk, staging=file.staging, frozen=False)
    return gathers.exclude(parts__number=number).exists()


def _may_be_placed(file: File, number: int, checksum: Checksum) -> bool:
    """Return False if another request has stored the same bytes meanwhile.

    The record of other bytes of the part is deleted before they are overwritten, so that recorded parts are on the disk
    even after a crash. Raises Conflict if the file is being completed or was started over.
    """
    if not File.objects.filter(pk=file.pk, staging=file.staging, frozen=False).exists():
        raise Conflict(messages.FILE_NOT_ACCEPTING_PARTS(path=f"{file.path!r}"))
    there = file.parts.filter(number=number).first()
    if there is not None and there.checksum == checksum.text:
        return False
    if there is not None:
        there.delete()
    return True


@transaction.atomic
def _record_part(version: Version, file: File, number: int, checksum: Checksum) -> None:
    """Record a part. Raises NotFound if the file was removed meanwhile, Conflict if its version was closed or
    deleted."""
    fill(locked(version))
    if not File.objects.select_for_update().filter(pk=file.pk, staging=file.staging).exists():
        raise NotFound(messages.FILE_REMOVED_DURING_UPLOAD(path=f"{file.path!r}"))
    Part.objects.create(file=file, number=number, checksum=checksum.text)


def _hash_in_background(file: File, number: int) -> None:
    """Have the existing parts read for the checksum of the file while others arrive.

    Only the process that received the first part does so; otherwise each process would read every part.
    """
    gathering = _gathering(file)
    if number == 0 or READINGS.is_followed(gathering):
        READINGS.follow(gathering, _marks(file))


def _gathering(file: File) -> Gathering:
    path = staging.path_of(default_storage().staging(), file.staging)
    return Gathering(file.staging, path, Parts(file.size, file.part_size))


def _marks(file: File) -> list[int]:
    """Return the primary keys of the part rows, from the first part up to the first missing one.

    A part whose bytes are replaced gets a new row.
    """
    rows = file.parts.order_by("number").values_list("number", "pk")
    return [pk for place, (number, pk) in enumerate(rows) if number == place]


def numbers_of(file: File) -> list[int]:
    """Return the numbers of the parts that are there; all of them if the file is complete."""
    if file.complete:
        return list(range(Parts(file.size, file.part_size).count))
    return list(file.parts.order_by("number").values_list("number", flat=True))


def checksums_of(file: File) -> dict[int, str]:
    """Return the checksums of the parts that are there; empty if the file is complete."""
    return dict(file.parts.order_by("number").values_list("number", "checksum"))


# --- Completion ------------------------------------------------------------------------------------------------------
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
    version = version_for(actor, place.ns, place.name, place.number, _WRITE)
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
    if _is_handed_over(file, folder):  # an interrupted or concurrent call got this far
        return file.sha256, file.size
    if file.size == 0:
        staging.make_empty(folder, file.staging)
    staging.settle(folder, file.staging)  # a part may still be being written
    try:
        found = READINGS.finish(_gathering(file), _marks_of_all(file), seconds)
        _refuse_vanished(file, folder)
    except (StorageError, Incomplete):
        file.refresh_from_db()
        if _is_handed_over(file, folder):
            return file.sha256, file.size
        _unfreeze(file, folder)
        raise
    return found.sha256, found.done


def _refuse_vanished(file: File, folder: Path) -> None:
    """Raise StorageError if the staging file is missing: it may have been read long before it was lost."""
    if not staging.path_of(folder, file.staging).exists():
        raise StorageError(messages.PARTS_UNREADABLE(why=os.strerror(errno.ENOENT)))


def _marks_of_all(file: File) -> list[int]:
    """Return the marks of all parts. Raises Incomplete if a part was about to be replaced and its new bytes never
    came."""
    marks = _marks(file)
    if len(marks) < Parts(file.size, file.part_size).count:
        raise _missing(file) or Incomplete(messages.PARTS_CHANGED(path=f"{file.path!r}"), missing=[])
    return marks


@transaction.atomic
def _unfreeze(file: File, folder: Path) -> None:
    """Accept parts again. If the staging file is missing, accept all: a power cut can undo a recorded write."""
    if staging.path_of(folder, file.staging).exists():
        File.objects.filter(pk=file.pk, blob=None).update(frozen=False)
    elif not file.complete:
        start_over(file)


def _is_handed_over(file: File, folder: Path) -> bool:
    gathers = staging.path_of(folder, file.staging).exists()
    return not gathers and Blob.objects.filter(key=_key(file, file.sha256)).exists()


def _key(file: File, sha256: str) -> str:
    """Return the storage key of the content. Each upload has its own key, so that a deletion never affects a new
    upload."""
    return f"blobs/{file.version.dataset.namespace_id}/{sha256[:2]}/{sha256}-{file.staging.hex}"


def start_over(file: File) -> None:
    """Forget all received parts. Call within a transaction."""
    old = file.staging
    file.parts.all().delete()
    file.staging, file.frozen = uuid.uuid4(), False
    file.save(update_fields=["staging", "frozen"])
    transaction.on_commit(lambda: staging.discard(default_storage().staging(), old))


def _store(version: Version, file: File, sha256: str) -> File:
    """Hand the content to the storage. Its row exists before that and is linked to the file afterwards."""
    blob = _create_blob(version, file, sha256)
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
            found.blob, found.sha256 = _settle(blob), sha256
            found.save(update_fields=["blob", "sha256"])
            found.parts.all().delete()
            storage_usage.settle(version.dataset)
    found.version = version
    return found


@transaction.atomic
def _create_blob(version: Version, file: File, sha256: str) -> Blob:
    File.objects.filter(pk=file.pk, blob=None).update(sha256=sha256)
    file.sha256 = sha256
    key = _key(file, sha256)
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


def _settle(blob: Blob) -> Blob:
    """Return the blob, now marked as stored; or an equal one that was stored from another upload meanwhile."""
    if blob.kept is not None:
        return blob
    same = _stored_blob(blob.namespace, blob.sha256, blob.size)
    now = wall_clock()
    if same is not None:
        Blob.objects.filter(pk=blob.pk).exclude(pk=same.pk).update(doomed=now)
        return same
    Blob.objects.filter(pk=blob.pk).update(kept=now)
    blob.kept = now
    return blob


@transaction.atomic
def take_out(*, actor: User, place: Place, file_id: int) -> None:
    """Remove a file from a version that is being filled. Raises NotFound, Forbidden, Conflict."""
    version = locked(version_for(actor, place.ns, place.name, place.number, _WRITE))
    fill(version)
    file = file_for(actor, version, file_id)
    transaction.on_commit(lambda: staging.discard(default_storage().staging(), file.staging))
    file.delete()
    storage_usage.settle(version.dataset)
    audit_log.record(
        "dataset.take_out",
        version.dataset.full_name,
        actor=actor,
        namespace=version.dataset.namespace,
        detail={"version": version.number, "path": file.path},
    )
