"""What is deleted after its grace period, and what never is."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from datasets import garbage_collection, services, tasks
from datasets.indexing import chunk_index, indexing
from datasets.models import Blob, Dataset, File, Version
from datasets.states import VersionState
from datasets.storage import default_storage
from datasets.storage.base import StorageError
from datasets.uploads import announcement, staging
from portal.common.clock import now
from rbac.audit import restorations
from tests.datasets.conftest import Uploader, sha

pytestmark = pytest.mark.django_db
CONTENT = b"0123456789abcdefghij"
LATER = timedelta(days=8)


def kept() -> int:
    """Return the number of blobs in the storage."""
    return len(list(default_storage().list("blobs")))


def test_a_deleted_dataset_keeps_its_content_until_its_grace_is_over(uploader: Uploader) -> None:
    uploader.upload("a", CONTENT)
    services.delete_dataset(actor=uploader.actor, ns="team", name="mine")
    garbage_collection.tidy(now() + timedelta(days=6))
    assert kept() == 1
    garbage_collection.tidy(now() + LATER)
    assert (kept(), Dataset.objects.count(), Blob.objects.count()) == (0, 0, 0)


def test_a_deleted_version_that_a_job_needs_stays_until_it_is_needed_no_more(uploader: Uploader) -> None:
    uploader.upload("a", CONTENT)
    services.delete_version(actor=uploader.actor, ns="team", name="mine", number=1)
    version = Version.objects.get()
    garbage_collection.tidy(now() + LATER, {version.pk})
    assert (kept(), list(Version.objects.all())) == (1, [version])
    garbage_collection.tidy(now() + LATER)
    assert (kept(), Version.objects.count()) == (0, 0)


def test_content_of_another_version_stays(uploader: Uploader) -> None:
    uploader.upload("a", CONTENT)
    uploader.begin()
    uploader.upload("b", CONTENT)
    services.delete_version(actor=uploader.actor, ns="team", name="mine", number=1)
    garbage_collection.purge(now() + LATER)
    garbage_collection.doom(now())
    garbage_collection.sweep_out()
    assert kept() == 1
    assert File.objects.get().path == "b"


def test_uploading_a_content_that_is_being_deleted_stores_it_again(uploader: Uploader) -> None:
    file = uploader.upload("a", CONTENT)
    announcement.take_out(actor=uploader.actor, place=uploader.place, file_id=file.pk)
    garbage_collection.doom(now())
    assert not uploader.announce("b", CONTENT, digest=sha(CONTENT)).complete
    again = uploader.upload("b", CONTENT)
    garbage_collection.sweep_out()
    assert again.blob is not None
    with default_storage().open(again.blob.key) as stream:
        assert stream.read() == CONTENT


def test_a_version_that_is_no_longer_filled_is_deleted(uploader: Uploader) -> None:
    file = uploader.announce("a", CONTENT)
    uploader.part(file, 0, CONTENT[:10])
    garbage_collection.tidy(now() + timedelta(days=6))
    assert Version.objects.get().state == VersionState.OPEN
    garbage_collection.tidy(now() + LATER)
    assert not File.objects.exists()


def test_a_version_that_is_filled_after_it_was_found_idle_is_not_deleted(
    uploader: Uploader, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = uploader.announce("a", CONTENT)
    Version.objects.update(touched=now() - LATER)
    give_up = garbage_collection._give_up

    def given_up_after_a_part(version: Version, before: datetime) -> int:
        uploader.part(file, 0, CONTENT[:10])
        return give_up(version, before)

    monkeypatch.setattr(garbage_collection, "_give_up", given_up_after_a_part)
    assert garbage_collection.give_up_uploads(now() - timedelta(days=1)) == 0
    assert Version.objects.get().state == VersionState.OPEN
    assert File.objects.get().parts.count() == 1


def test_a_sealed_version_is_never_deleted_as_idle(uploader: Uploader) -> None:
    uploader.upload("a", CONTENT)
    indexing.index(uploader.seal().pk)
    garbage_collection.tidy(now() + timedelta(days=1000))
    assert Version.objects.get().state == VersionState.SEALED
    assert kept() == 1


def test_staged_data_without_a_file_is_discarded_after_its_minimum_age(uploader: Uploader) -> None:
    file = uploader.announce("a", CONTENT)
    uploader.part(file, 0, CONTENT[:10])
    folder = default_storage().staging()
    orphan = Path(folder) / ("0" * 32)
    orphan.write_bytes(b"left by a kill")
    os.utime(orphan, (0, 0))
    garbage_collection.discard_orphans(now())
    assert {name for name, _ in staging.gathered(folder)} == {file.staging}


def test_staged_data_of_a_file_stays_at_any_age(uploader: Uploader) -> None:
    file = uploader.announce("a", CONTENT)
    uploader.part(file, 0, CONTENT[:10])
    folder = default_storage().staging()
    os.utime(staging.path_of(folder, file.staging), (0, 0))
    assert garbage_collection.discard_orphans(now()) == 0
    assert staging.path_of(folder, file.staging).exists()


def test_content_that_is_being_handed_over_is_not_deleted(uploader: Uploader, dataset: Dataset) -> None:
    Blob.objects.create(namespace=dataset.namespace, sha256="0" * 64, size=1, key="blobs/1/00/new", created=now())
    garbage_collection.tidy(now() + timedelta(seconds=1))
    assert Blob.objects.get().doomed is None


def test_content_that_cannot_be_deleted_keeps_its_row_for_the_next_round(
    uploader: Uploader, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    Blob.objects.create(
        namespace=dataset.namespace, sha256="0" * 64, size=1, key="blobs/1/00/x", created=now(), doomed=now()
    )

    def fail(storage: object, key: str) -> None:
        raise StorageError("the bucket is away")

    with monkeypatch.context() as patch:
        patch.setattr(type(default_storage()), "delete", fail)
        assert garbage_collection.sweep_out() == 0
    assert Blob.objects.count() == 1
    assert garbage_collection.sweep_out() == 1
    assert Blob.objects.count() == 0


def test_content_that_was_never_handed_over_is_deleted(uploader: Uploader, dataset: Dataset) -> None:
    Blob.objects.create(
        namespace=dataset.namespace, sha256="0" * 64, size=1, key="blobs/1/00/left", created=now() - timedelta(hours=2)
    )
    garbage_collection.tidy(now())
    assert Blob.objects.count() == 0


def test_a_version_whose_hint_was_lost_is_hinted_again(uploader: Uploader, monkeypatch: pytest.MonkeyPatch) -> None:
    uploader.upload("a", CONTENT)
    version = uploader.seal()
    hinted: list[int] = []
    monkeypatch.setattr(tasks, "hint", hinted.append)
    garbage_collection.Maintenance().when_due(now())
    assert hinted == [version.pk]


def test_directories_of_a_dead_worker_are_removed(uploader: Uploader) -> None:
    folder = default_storage().shelf() / f"{chunk_index.SCRATCH}1"
    folder.mkdir()
    garbage_collection.tidy(now())
    assert folder.exists()
    garbage_collection.tidy(now() + timedelta(days=2))
    assert not folder.exists()


@pytest.mark.invariant("For a week after a restoration, unfinished uploads that the database does not know are kept.")
def test_after_a_restoration_staged_data_of_unknown_files_stays_for_a_week(uploader: Uploader) -> None:
    file = uploader.announce("a", CONTENT)
    uploader.part(file, 0, CONTENT[:10])
    at = restorations.record({}).at
    File.objects.all().delete()
    assert garbage_collection.discard_orphans(at + timedelta(days=6)) == 0
    assert garbage_collection.discard_orphans(at + timedelta(days=8)) == 1
