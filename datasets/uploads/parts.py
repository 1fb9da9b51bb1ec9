"""Parts of an upload: receive, record and list them. All calls tolerate repetition and delay."""

from __future__ import annotations

from django.db import transaction

from datasets import messages
from datasets.checksums import Checksum
from datasets.errors import WrongLength
from datasets.manifest import Parts
from datasets.models import File, Part, Version
from datasets.selectors import file_for, version_for
from datasets.services import fill, locked
from datasets.storage import default_storage
from datasets.uploads import staging
from datasets.uploads.upload_states import WRITE, Place
from datasets.uploads.upload_verification import READINGS, Gathering
from portal.common.errors import Conflict, NotFound, TooLarge
from rbac.models import User


def receive_part(
    *, actor: User, place: Place, file_id: int, number: int, checksum: Checksum, length: int | None, body: staging.Body
) -> list[int]:
    """Receive one part from ``body``. Return the numbers of the parts that are there.

    No transaction is open while bytes arrive. Raises NotFound, Forbidden, Conflict, ValidationFailed, WrongLength,
    TooLarge, CutOff, ChecksumMismatch, StorageFull.
    """
    version = version_for(actor, place.ns, place.name, place.number, WRITE)
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
    gathering = gathering_of(file)
    if number == 0 or READINGS.is_followed(gathering):
        READINGS.follow(gathering, marks_of(file))


def gathering_of(file: File) -> Gathering:
    path = staging.path_of(default_storage().staging(), file.staging)
    return Gathering(file.staging, path, Parts(file.size, file.part_size))


def marks_of(file: File) -> list[int]:
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
