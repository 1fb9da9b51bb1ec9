"""Recordings of terminals in the storage. Each is stored in parts, so that a killed web process loses seconds only."""

from __future__ import annotations

import io
import itertools
import logging
from collections.abc import Iterator
from uuid import UUID

from django.db import transaction
from django.db.models import F

from datasets.storage import default_storage
from datasets.storage.base import StorageError
from jobs import storage_usage
from jobs.messages import terminals as messages
from jobs.models import Job, TerminalRecording
from jobs.selectors.jobs import job_for
from portal.common.clock import now
from portal.common.errors import NotFound
from quota import storage as storage_quota
from quota.models import Kind
from rbac.access import Actor
from rbac.scopes import Scope

# The most that one connection records, in bytes of the format.
MOST_BYTES = 32 * 1024 * 1024
_PIECE = 64 * 1024

_log = logging.getLogger(__name__)


def begin(job: Job, replica: str, person: str) -> TerminalRecording:
    """Create the row of a recording."""
    return TerminalRecording.objects.create(job=job, replica=replica, person=person, started=now())


def add_part(recording: TerminalRecording, content: bytes) -> bool:
    """Store the next part and count it in the quota. Return False if the storage did not accept it."""
    key = _key(recording, recording.parts)
    try:
        default_storage().put(key, io.BytesIO(content))
    except StorageError:
        _log.warning("A part of the recording %s could not be stored.", recording.pk, exc_info=True)
        return False
    with transaction.atomic():
        size = len(content)
        # The job may have been deleted since, with its recordings.
        found = TerminalRecording.objects.filter(pk=recording.pk)
        if found.update(parts=F("parts") + 1, size=F("size") + size):
            storage_quota.add(storage_usage.of_job(recording.job, Kind.ARTIFACTS), size)
    recording.parts += 1
    return True


def end(recording: TerminalRecording) -> None:
    """Note the end of the recording."""
    TerminalRecording.objects.filter(pk=recording.pk).update(ended=now())


def keys_of(job: Job) -> list[str]:
    """Return the keys of all recordings of a job."""
    rows = TerminalRecording.objects.filter(job=job)
    return [_key(row, number) for row in rows for number in range(row.parts)]


# --- Reading ---------------------------------------------------------------------------------------------------------
def recordings_for(actor: Actor, job_id: UUID) -> list[TerminalRecording]:
    """Return the recordings of a job, newest first, for an owner of its namespace. Raises NotFound and Forbidden."""
    job = job_for(actor, job_id, Scope.NAMESPACE_ADMIN)
    return list(TerminalRecording.objects.filter(job=job).order_by("-started"))


def content_for(actor: Actor, job_id: UUID, recording_id: UUID) -> tuple[TerminalRecording, Iterator[bytes]]:
    """Return one recording and its content. Raises NotFound and Forbidden."""
    job = job_for(actor, job_id, Scope.NAMESPACE_ADMIN)
    recording = TerminalRecording.objects.filter(job=job, pk=recording_id).first()
    if recording is None:
        raise NotFound(messages.RECORDING_NOT_FOUND())
    return recording, itertools.chain.from_iterable(_pieces(_key(recording, n)) for n in range(recording.parts))


def _pieces(key: str) -> Iterator[bytes]:
    with default_storage().open(key) as content:
        while piece := content.read(_PIECE):
            yield piece


def _key(recording: TerminalRecording, part: int) -> str:
    return f"{storage_usage.ARTIFACTS}/{recording.job_id}/terminal/{recording.pk}/{part:06d}.cast"
