"""The states of an upload, and the changes between them that more than one step makes.

receiving -> frozen -> verified -> adopted
    ^          |          |
    +----------+----------+      (a part is missing, the bytes differ, or the staging file is lost)

``receiving``: parts are written to the staging file; each has a row after its bytes are on the disk. ``frozen``:
``completion.complete`` has begun, and no part is accepted. ``verified``: the checksum of the staged bytes is the
announced one, and the row of the content exists. ``adopted``: the storage has the content, and the staging file is
gone; ``completion`` then links the content to the file.

A file that starts over gets another ``staging`` number: what an earlier number wrote counts no more. Every write is
fenced by that number, and by ``frozen`` while parts arrive.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path

from django.db import transaction

from datasets.models import Blob, File
from datasets.storage import default_storage
from datasets.uploads import staging
from datasets.uploads.content import key_of
from rbac.scopes import Scope


@dataclass(frozen=True)
class Place:
    """Version as named in a URL."""

    ns: str
    name: str
    number: int


WRITE = Scope.DATASET_WRITE


def start_over(file: File) -> None:
    """Forget all received parts. Call within a transaction."""
    old = file.staging
    file.parts.all().delete()
    file.staging, file.frozen = uuid.uuid4(), False
    file.save(update_fields=["staging", "frozen"])
    transaction.on_commit(lambda: staging.discard(default_storage().staging(), old))


@transaction.atomic
def unfreeze(file: File, folder: Path) -> None:
    """Accept parts again. If the staging file is missing, accept all: a power cut can undo a recorded write."""
    if staging.path_of(folder, file.staging).exists():
        File.objects.filter(pk=file.pk, blob=None).update(frozen=False)
    elif not file.complete:
        start_over(file)


def is_handed_over(file: File, folder: Path) -> bool:
    gathers = staging.path_of(folder, file.staging).exists()
    return not gathers and Blob.objects.filter(key=key_of(file, file.sha256)).exists()
