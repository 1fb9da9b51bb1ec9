"""Announcement of files of a version: begin, resume or remove an upload. All calls tolerate repetition and delay."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import transaction

from datasets import manifest, messages, storage_usage
from datasets.errors import Exists
from datasets.models import File, Version
from datasets.selectors import file_for, version_for
from datasets.services import fill, locked
from datasets.storage import default_storage
from datasets.uploads import staging
from datasets.uploads.content import may_be_stored, stored_blob
from datasets.uploads.upload_states import WRITE, Place, start_over
from portal.common.clock import now as wall_clock
from portal.common.errors import ValidationFailed
from rbac.audit import log as audit_log
from rbac.models import User

FILES_LIMIT = 200_000  # maximum number of files of a version


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
    version = version_for(actor, place.ns, place.name, place.number, WRITE)
    with transaction.atomic():
        # Lock the namespace before the version, always in this order, to avoid a deadlock.
        storage_usage.hold(version.dataset)
        version = locked(version)
        fill(version)
        earlier = version.files.filter(folded=manifest.folded(wanted)).select_related("blob").first()
        if earlier is not None:
            earlier.version = version
            file = _resumed(earlier, wanted, size, sha256)
            return Announced(file, created=False, hash_first=may_be_stored(file, sha256))
        _refuse_crossing(version, wanted)
        known = stored_blob(version.dataset.namespace, sha256, size)
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
    return Announced(file, created=True, hash_first=may_be_stored(file, sha256))


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
        file.blob = stored_blob(file.version.dataset.namespace, sha256, size)
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


def _reserve(version: Version, size: int) -> None:
    """Take the space for a file from the version's reservation, the rest from the namespace's quota."""
    drawn = min(size, version.reserved)
    storage_usage.claim(version.dataset, size - drawn)
    version.reserved -= drawn
    version.save(update_fields=["reserved"])


@transaction.atomic
def take_out(*, actor: User, place: Place, file_id: int) -> None:
    """Remove a file from a version that is being filled. Raises NotFound, Forbidden, Conflict."""
    version = locked(version_for(actor, place.ns, place.name, place.number, WRITE))
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
