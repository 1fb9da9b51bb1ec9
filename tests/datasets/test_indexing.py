"""What becomes of a version that is sealed."""

from __future__ import annotations

import io
from datetime import timedelta
from pathlib import Path

import pytest

from datasets import indexing, manifest, services, uploads
from datasets.models import File, Version
from datasets.states import VersionState
from datasets.storage import default_storage
from datasets.storage.base import StorageError
from datasets.storage.local import LocalStorage
from portal.common.time import now
from runtime.data import recordio
from tests.datasets.conftest import Uploader

pytestmark = pytest.mark.django_db


def records(count: int) -> bytes:
    """A RecordIO file with two records a chunk."""
    file = io.BytesIO()
    with recordio.Writer(file, max_chunk_bytes=8) as writer:
        for index in range(count):
            writer.write(b"%04d" % index)
    return file.getvalue()


def sealed(uploader: Uploader) -> Version:
    version = uploader.seal()
    indexing.index(version.pk)
    version.refresh_from_db()
    return version


def test_the_manifest_names_every_file_and_chunk(uploader: Uploader) -> None:
    content = records(5)
    uploader.upload("train-0.recordio", content)
    uploader.upload("README.md", b"ours")
    version = sealed(uploader)
    assert (version.state, version.format, version.records, version.files_count) == ("sealed", "recordio", 5, 2)
    with default_storage().open(version.manifest) as stream:
        read = manifest.load(stream.read())
    readme, train = read.files
    assert (readme.records, train.records) == (None, 5)
    assert [chunk.records for chunk in train.chunks] == [2, 2, 1]
    assert train.chunks[-1].offset + train.chunks[-1].length == len(content)
    assert File.objects.get(path="train-0.recordio").records == 5


def test_a_damaged_file_fails_the_version_by_name_and_can_be_replaced(uploader: Uploader) -> None:
    uploader.upload("train-0.recordio", records(5)[:-1])
    version = sealed(uploader)
    assert version.state == VersionState.FAILED
    assert "'train-0.recordio'" in version.why and str(default_storage().staging().parent) not in version.why
    uploads.take_out(actor=uploader.actor, place=uploader.place, file_id=File.objects.get().pk)
    uploader.upload("train-0.recordio", records(5))
    assert sealed(uploader).state == VersionState.SEALED


def test_two_workers_index_a_version_once(uploader: Uploader) -> None:
    uploader.upload("a", b"x")
    version = uploader.seal()
    first = indexing._claim(version.pk)
    assert first is not None
    assert indexing._claim(version.pk) is None


def test_a_worker_whose_claim_has_run_out_changes_nothing(uploader: Uploader) -> None:
    uploader.upload("a", b"x")
    version = uploader.seal()
    slow = indexing._claim(version.pk)
    assert slow is not None
    Version.objects.update(claimed_until=now() - timedelta(seconds=1))
    assert indexing._claim(version.pk) is not None
    indexing._fail(slow, "too late")
    version.refresh_from_db()
    assert (version.state, version.why) == (VersionState.INDEXING, "")


def test_a_storage_that_is_away_is_tried_again_and_then_told(
    uploader: Uploader, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploader.upload("a", b"x")
    version = uploader.seal()

    def away(self: LocalStorage, key: str) -> Path:
        raise StorageError("away")

    monkeypatch.setattr(LocalStorage, "local_path", away)
    for _ in range(indexing.TRIES):
        indexing.index(version.pk)
        version.refresh_from_db()
        Version.objects.update(claimed_until=None)
    assert version.state == VersionState.FAILED and "Seal the version again" in version.why


def test_a_version_that_is_deleted_while_it_is_indexed_stays_deleted(uploader: Uploader) -> None:
    uploader.upload("a", b"x")
    version = uploader.seal()
    claimed = indexing._claim(version.pk)
    assert claimed is not None
    services.delete_version(actor=uploader.actor, ns="team", name="mine", number=1)
    indexing._seal(claimed, indexing._manifest(claimed), "manifests/x")
    version.refresh_from_db()
    assert version.state == VersionState.DELETED
