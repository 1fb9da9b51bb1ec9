"""Storage on a shared file system: a real GlusterFS volume. Run separately by ``make test-glusterfs``."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from pytest_django import Settings

from datasets import materialization, messages
from datasets.models import Blob, File, Version
from datasets.storage.base import StorageFull
from datasets.storage.local import LocalStorage
from runtime.data import catalogue
from tests.contracts.storage_contract import StorageContract
from tests.datasets.conftest import Uploader
from tests.datasets.filled import seal
from tests.messages import either
from tests.personas import Personas
from tests.servers import gluster_server
from tests.servers.gluster_server import Volume

pytestmark = [pytest.mark.glusterfs, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def volume(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Volume]:
    assert not gluster_server.missing(), gluster_server.missing()
    volume = Volume(tmp_path_factory.mktemp("volume"), f"regatta-{uuid4().hex[:8]}")
    try:
        volume.start()
        yield volume
    finally:
        volume.remove()


@pytest.fixture
def root(volume: Volume) -> Path:
    folder = volume.mount / uuid4().hex
    folder.mkdir()
    return folder


class TestStorageOnAVolume(StorageContract):
    @pytest.fixture
    def storage(self, root: Path) -> LocalStorage:
        return LocalStorage(root)


@pytest.fixture
def on_volume(settings: Settings, root: Path) -> Path:
    settings.STORAGE_DIR = root
    return root


@pytest.mark.django_db
@pytest.mark.usefixtures("on_volume", "small_parts")
class TestDatasetOnAVolume:
    def test_it_is_uploaded_sealed_and_laid_out_for_a_job_without_a_copy(self, personas: Personas) -> None:
        version: Version = seal(personas.developer)
        assert materialization.prepare(version, patience=60)
        root = materialization.root_of(version.pk)
        info = catalogue.find("team/mine", [root])
        rows = [row for chunk in catalogue.chunks(info) for row in catalogue.read_chunk(chunk)]
        assert rows == [{"x": "1", "y": "2"}, {"x": "3", "y": "4"}]
        (laid_out,) = root.rglob("train.csv")
        assert laid_out.stat().st_nlink == 2

    def test_nobody_but_the_portal_s_account_reads_the_contents(self, personas: Personas, on_volume: Path) -> None:
        seal(personas.developer)
        for blob in Blob.objects.all():
            mode = (on_volume / blob.key).stat()
            assert stat.S_IMODE(mode.st_mode) == 0o600 and mode.st_uid == os.getuid()

    def test_a_namespace_without_quota_on_the_volume_gets_an_error_and_others_go_on(
        self, personas: Personas, volume: Volume, on_volume: Path
    ) -> None:
        seal(personas.developer, files={"small.csv": b"x\n1\n"})
        kept = on_volume / "blobs" / str(personas.namespace.pk)
        volume.limit(str(kept.relative_to(volume.mount)), "1MB")
        uploader = Uploader(personas.developer)
        uploader.begin()
        file = uploader.announce("large.bin", os.urandom(4))
        File.objects.filter(pk=file.pk).update(size=3 << 20, part_size=4 << 20)
        file.refresh_from_db()
        content = os.urandom(3 << 20)
        uploader.part(file, 0, content)
        with pytest.raises(StorageFull, match=either(messages.STORAGE_DISK_FULL, messages.DISK_FULL_UPLOAD)):
            uploader.complete(file, content)
        seal(personas.stranger, "elsewhere", "theirs", {"a.csv": b"x\n1\n"})
        volume.limit(str(kept.relative_to(volume.mount)), "1GB")
        assert uploader.complete(file, content).complete
