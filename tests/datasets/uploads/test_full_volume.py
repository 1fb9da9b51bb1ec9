"""The portal's volume is full: uploads are refused with a message, nothing is lost, and they continue afterwards."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_django import Settings

from datasets import messages
from datasets.storage import default_storage
from datasets.storage.base import StorageFull
from tests.datasets.conftest import CONTENT, Uploader, stored
from tests.messages import pattern
from tests.small_disk import filled, only_root, small_disk

pytestmark = [pytest.mark.django_db, only_root]
LARGE = bytes(range(256)) * 1024  # larger than what is left on a full volume


@pytest.fixture(autouse=True)
def volume(settings: Settings, tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "volume"
    disk.mkdir()
    with small_disk(disk, 4) as path:
        settings.STORAGE_DIR = path / "storage"
        yield path


@pytest.mark.invariant("On a full volume an upload is refused with a message, and continues once there is space.")
def test_an_upload_is_refused_and_continues_later(uploader: Uploader, volume: Path) -> None:
    first = uploader.upload("first", CONTENT)
    file = uploader.announce("second", CONTENT)
    with filled(volume):
        with pytest.raises(StorageFull, match=pattern(messages.DISK_FULL_UPLOAD)) as refused:
            uploader.parts(file, CONTENT)
        assert (refused.value.code, refused.value.status) == ("storage_full", 507)
        assert stored(first) == CONTENT
    uploader.parts(file, CONTENT)
    assert stored(uploader.complete(file, CONTENT)) == CONTENT


def test_a_file_of_the_portal_is_not_half_written(volume: Path) -> None:
    storage = default_storage()
    storage.put("a/model", io.BytesIO(b"before"))
    with filled(volume):
        with pytest.raises(StorageFull, match=pattern(messages.STORAGE_DISK_FULL)):
            storage.put("a/model", io.BytesIO(LARGE))
        with storage.open("a/model") as stream:
            assert stream.read() == b"before"
    assert storage.put("a/model", io.BytesIO(LARGE)).size == len(LARGE)
