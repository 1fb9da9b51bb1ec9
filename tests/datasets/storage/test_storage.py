from __future__ import annotations

import errno
import io
import os
import shutil
from pathlib import Path

import pytest

from datasets import messages
from datasets.storage import default_storage
from datasets.storage.base import StorageError, StorageFull
from datasets.storage.local import LocalStorage
from tests.contracts.storage_contract import StorageContract
from tests.messages import pattern


class TestLocalStorage(StorageContract):
    @pytest.fixture
    def storage(self, tmp_path: Path) -> LocalStorage:
        return LocalStorage(tmp_path / "storage")


class FullDisk(io.BytesIO):
    """Stream whose copying fails like writing to a full disk."""

    def read(self, size: int | None = -1) -> bytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path)


def test_a_full_disk_is_reported_in_a_message(storage: LocalStorage) -> None:
    with pytest.raises(StorageFull, match=pattern(messages.STORAGE_DISK_FULL)):
        storage.put("a/model.npz", FullDisk())


def test_a_failed_put_leaves_no_temporary_file(storage: LocalStorage) -> None:
    with pytest.raises(StorageFull):
        storage.put("a/model.npz", FullDisk())
    assert [path.name for path in storage.root.rglob("*") if path.is_file()] == []


def test_a_file_where_a_directory_is_needed_is_an_error(storage: LocalStorage) -> None:
    storage.put("a", io.BytesIO(b"x"))
    with pytest.raises(StorageError, match=pattern(messages.STORAGE_OPERATION_FAILED)):
        storage.put("a/b", io.BytesIO(b"x"))


def test_the_hash_is_computed_again_if_the_file_was_changed_outside_the_portal(storage: LocalStorage) -> None:
    before = storage.put("a", io.BytesIO(b"one"))
    (storage.root / "a").write_bytes(b"other")
    assert storage.stat("a").sha256 != before.sha256


def test_a_lost_hash_is_computed_again(storage: LocalStorage) -> None:
    before = storage.put("a", io.BytesIO(b"one"))
    (storage.root / ".sums" / "a").unlink()
    assert storage.stat("a") == before


def test_content_that_cannot_be_linked_is_copied(storage: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise OSError(errno.EMLINK, os.strerror(errno.EMLINK))

    storage.put("a", io.BytesIO(b"x"))
    monkeypatch.setattr(Path, "hardlink_to", refuse)
    storage.place("a", storage.shelf() / "a")
    assert (storage.shelf() / "a").read_bytes() == b"x"


def test_a_copy_without_space_leaves_nothing(storage: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    def copy_half(source: Path, target: Path) -> None:
        Path(target).write_bytes(Path(source).read_bytes()[:1])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    storage.put("a", io.BytesIO(b"xyz"))
    monkeypatch.setattr(Path, "hardlink_to", refuse)
    monkeypatch.setattr(shutil, "copyfile", copy_half)
    with pytest.raises(StorageFull):
        storage.place("a", storage.shelf() / "a")
    assert list(storage.shelf().iterdir()) == []


def test_the_default_storage_is_in_the_configured_directory(settings, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    settings.STORAGE_DIR = tmp_path / "elsewhere"
    default_storage().put("a", io.BytesIO(b"x"))
    assert (tmp_path / "elsewhere" / "a").read_bytes() == b"x"


def test_the_hash_is_computed_again_if_other_content_has_the_same_length(storage: LocalStorage) -> None:
    before = storage.put("a", io.BytesIO(b"one"))
    (storage.root / "a").write_bytes(b"two")
    os.utime(storage.root / "a", ns=(1, 1))
    assert storage.stat("a").sha256 != before.sha256
