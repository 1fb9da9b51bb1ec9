"""Concurrent writers that meet at a defined point, and what must be on the disk before it is visible."""

from __future__ import annotations

import fcntl
import io
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from datasets import messages
from datasets.models import File, Part
from datasets.storage.local import LocalStorage
from datasets.uploads import completion, parts, staging, upload_states
from portal.common.errors import Conflict, NotFound
from tests.datasets.conftest import CONTENT, Uploader, stored
from tests.messages import mentions, pattern
from tests.recording_disk import RecordingDisk

pytestmark = pytest.mark.django_db


def when_synced(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """Call ``happens`` once, when the bytes of a part are on the disk and before they are recorded."""
    sync, pending = staging.os.fdatasync, [happens]

    def interrupted(descriptor: int) -> None:
        sync(descriptor)
        while pending:
            pending.pop()()

    monkeypatch.setattr(staging.os, "fdatasync", interrupted)


def test_a_part_of_a_file_that_starts_over_before_it_is_recorded_does_not_count(
    uploader: Uploader, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = uploader.announce("a", CONTENT)
    when_synced(monkeypatch, lambda: upload_states.start_over(File.objects.get(pk=file.pk)))
    with pytest.raises(NotFound, match=pattern(messages.FILE_REMOVED_DURING_UPLOAD)):
        uploader.part(file, 0, CONTENT[:10])
    assert not Part.objects.exists()


def test_a_part_of_a_file_that_is_removed_before_it_is_recorded_does_not_count(
    uploader: Uploader, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = uploader.announce("a", CONTENT)
    when_synced(monkeypatch, lambda: File.objects.filter(pk=file.pk).delete())
    with pytest.raises(NotFound):
        uploader.part(file, 0, CONTENT[:10])


@pytest.mark.django_db(transaction=True)
def test_completing_a_file_waits_for_a_part_that_is_being_written(
    uploader: Uploader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes of part 0 are replaced: the replacing request holds the range, and has not recorded the part yet."""
    file = uploader.announce("a", CONTENT)
    uploader.parts(file, b"?" * 10 + CONTENT[10:])
    placed, may_note = threading.Event(), threading.Event()

    def pause() -> None:
        placed.set()
        assert may_note.wait(60)

    when_synced(monkeypatch, pause)
    failed: list[BaseException] = []

    def replace() -> None:
        try:
            uploader.part(file, 0, CONTENT[:10])
        except BaseException as error:  # noqa: BLE001  asserted below
            failed.append(error)
        finally:
            connection.close()

    other = threading.Thread(target=replace)
    missing, lock = completion._missing, staging._lock

    def looked(wanted: File) -> Any:
        found = missing(wanted)
        if not other.ident:
            other.start()
            assert placed.wait(60)
        return found

    def waiting(descriptor: int, kind: int, offset: int, length: int) -> None:
        if kind == fcntl.F_RDLCK:
            may_note.set()
        lock(descriptor, kind, offset, length)

    monkeypatch.setattr(completion, "_missing", looked)
    monkeypatch.setattr(staging, "_lock", waiting)
    try:
        assert stored(uploader.complete(file, CONTENT)) == CONTENT
    finally:
        may_note.set()
        other.join(10)
    assert failed == []


def test_no_part_is_accepted_once_a_file_is_being_completed(
    uploader: Uploader, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = uploader.announce("a", CONTENT)
    uploader.parts(file, CONTENT)
    content_of, refused = completion._content_of, list[str]()

    def while_it_is_read(*given: Any) -> Any:
        with pytest.raises(Conflict) as error:
            uploader.part(file, 0, b"!" * 10)
        refused.append(str(error.value))
        return content_of(*given)

    monkeypatch.setattr(completion, "_content_of", while_it_is_read)
    assert stored(uploader.complete(file, CONTENT)) == CONTENT
    assert mentions(refused[0], messages.FILE_NOT_ACCEPTING_PARTS)


# --- Durability ------------------------------------------------------------------------------------------------------
def test_a_part_is_synced_before_it_is_recorded(uploader: Uploader, monkeypatch: pytest.MonkeyPatch) -> None:
    file = uploader.announce("a", CONTENT)
    disk = RecordingDisk(monkeypatch)
    note = parts._record_part

    def noting(*given: Any) -> None:
        disk.steps.append("note")
        note(*given)

    monkeypatch.setattr(parts, "_record_part", noting)
    uploader.part(file, 0, CONTENT[:10])
    assert disk.steps == ["sync .staging/", f"sync {file.staging.hex}", "note"]


def test_only_the_first_part_has_the_name_of_the_file_synced(
    uploader: Uploader, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = uploader.announce("a", CONTENT)
    uploader.part(file, 0, CONTENT[:10])
    disk = RecordingDisk(monkeypatch)
    uploader.part(file, 1, CONTENT[10:20])
    assert disk.steps == [f"sync {file.staging.hex}"]


def test_a_stored_file_is_synced_before_it_is_renamed_and_its_name_before_it_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = RecordingDisk(monkeypatch)
    LocalStorage(tmp_path).put("folder/a.bin", io.BytesIO(CONTENT))
    assert disk.steps[:3] == ["sync .put-*", "rename .put-* a.bin", "sync folder/"]


def test_an_adopted_file_is_synced_before_it_is_renamed_and_its_name_before_it_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LocalStorage(tmp_path)
    gathered = storage.staging() / uuid.uuid4().hex
    gathered.write_bytes(CONTENT)
    disk = RecordingDisk(monkeypatch)
    storage.adopt("folder/a.bin", gathered, "0" * 64)
    assert disk.steps[:3] == [f"sync {gathered.name}", f"rename {gathered.name} a.bin", "sync folder/"]
