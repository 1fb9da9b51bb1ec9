"""Indexing of a sealed version."""

from __future__ import annotations

import io
from datetime import timedelta
from typing import BinaryIO

import pytest

from datasets import manifest, messages, services
from datasets.indexing import indexing
from datasets.indexing.chunk_index import Inspection
from datasets.models import File, Version
from datasets.states import VersionState
from datasets.storage import default_storage
from datasets.storage.base import StorageError
from datasets.storage.local import LocalStorage
from datasets.uploads import announcement
from portal.common.clock import now
from runtime.data import recordio
from tests.datasets.conftest import Uploader
from tests.messages import mentions

pytestmark = pytest.mark.django_db


def records(count: int) -> bytes:
    """A RecordIO file with two records per chunk."""
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
    announcement.take_out(actor=uploader.actor, place=uploader.place, file_id=File.objects.get().pk)
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


def test_unreachable_storage_is_retried_and_then_reported(uploader: Uploader, monkeypatch: pytest.MonkeyPatch) -> None:
    uploader.upload("a", b"x")
    version = uploader.seal()

    def away(self: LocalStorage, key: str, offset: int = 0) -> BinaryIO:
        raise StorageError("away")

    monkeypatch.setattr(LocalStorage, "open", away)
    for _ in range(indexing.TRIES):
        indexing.index(version.pk)
        version.refresh_from_db()
        Version.objects.update(claimed_until=None)
    assert version.state == VersionState.FAILED and mentions(version.why, messages.INDEXING_STORAGE_UNREADABLE)


def test_a_version_that_is_deleted_while_it_is_indexed_stays_deleted(uploader: Uploader) -> None:
    uploader.upload("a", b"x")
    version = uploader.seal()
    claimed = indexing._claim(version.pk)
    assert claimed is not None
    services.delete_version(actor=uploader.actor, ns="team", name="mine", number=1)
    inspection = Inspection(claimed, lambda: None)
    indexing._seal(claimed, inspection, inspection.manifest(), "manifests/x")
    version.refresh_from_db()
    assert version.state == VersionState.DELETED


def test_a_worker_that_indexes_for_long_keeps_the_claim(uploader: Uploader, monkeypatch: pytest.MonkeyPatch) -> None:
    uploader.upload("a", b"x")
    version = uploader.seal()
    monkeypatch.setattr(indexing, "RENEW", timedelta(0))
    claimed = indexing._claim(version.pk)
    assert claimed is not None
    before = claimed.claimed_until
    indexing._renewal(claimed)()
    version.refresh_from_db()
    assert version.claimed_until == claimed.claimed_until != before


def test_a_worker_without_a_claim_stops(uploader: Uploader, monkeypatch: pytest.MonkeyPatch) -> None:
    uploader.upload("a", b"x")
    version = uploader.seal()
    monkeypatch.setattr(indexing, "RENEW", timedelta(0))
    claimed = indexing._claim(version.pk)
    assert claimed is not None
    services.delete_version(actor=uploader.actor, ns="team", name="mine", number=1)
    with pytest.raises(indexing.TakenOver):
        indexing._renewal(claimed)()


def test_a_version_on_which_every_worker_dies_fails_with_a_message(uploader: Uploader) -> None:
    uploader.upload("a", b"x")
    version = uploader.seal()
    for _ in range(indexing.TRIES):
        assert indexing._claim(version.pk) is not None
        Version.objects.update(claimed_until=now() - timedelta(seconds=1))
    indexing.index(version.pk)
    version.refresh_from_db()
    assert version.state == VersionState.FAILED and mentions(version.why, messages.INDEXING_NEVER_FINISHED)
