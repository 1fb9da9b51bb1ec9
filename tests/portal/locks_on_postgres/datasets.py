"""Locks of datasets, their versions and files."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from django.db import transaction
from pytest_django import Settings

from datasets import garbage_collection, manifest, services
from datasets.models import Blob, File, Part, Version
from datasets.states import VersionState
from datasets.uploads import announcement, parts, upload_states
from portal.common.clock import now as wall_clock
from portal.common.errors import Conflict, NotFound
from quota import storage
from quota.models import Capacity, Kind
from quota.storage import StoredObject
from tests.datasets.conftest import PART, Uploader, by_sha, sha
from tests.personas import Personas
from tests.portal.locks_on_postgres.conftest import Meet

pytestmark = pytest.mark.django_db(transaction=True)
CONTENT = b"0123456789"


@pytest.fixture
def uploader(personas: Personas, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Uploader:
    """The developer, with an open version."""
    settings.STORAGE_DIR = tmp_path / "storage"
    monkeypatch.setattr(manifest, "part_size_for", lambda size: PART)
    services.create_dataset(actor=personas.developer, namespace_name="team", name="mine")
    uploader = Uploader(personas.developer)
    uploader.begin()
    return uploader


def test_nothing_comes_into_a_version_that_is_being_deleted(uploader: Uploader, meet: Meet) -> None:
    def delete() -> str:
        return services.delete_version(actor=uploader.actor, ns="team", name="mine", number=1).state

    deleted, refused = meet("datasets.services._note", delete, lambda: uploader.announce("a.csv", CONTENT))
    assert deleted == VersionState.DELETED
    assert isinstance(refused, Conflict)
    assert Version.objects.get().state == VersionState.DELETED


def test_announcing_a_file_and_storing_another_artifact_do_not_deadlock(uploader: Uploader, meet: Meet) -> None:
    Capacity.objects.create(resource="storage", amount=1e9)
    namespace = uploader.begin().dataset.namespace

    def take() -> None:
        storage.take(namespace, StoredObject(namespace.pk, Kind.ARTIFACTS, uuid.uuid4().hex), 10)

    announced, taken = meet(
        "datasets.uploads.announcement.stored_blob", lambda: uploader.announce("a.csv", CONTENT), take
    )
    assert isinstance(announced, File)
    assert taken is None


def test_a_part_does_not_count_for_a_file_that_is_restarted(uploader: Uploader, meet: Meet) -> None:
    file = uploader.announce("a.csv", CONTENT)

    def start_over() -> None:
        with transaction.atomic():
            upload_states.start_over(File.objects.get(pk=file.pk))
            announcement.wall_clock()

    def note_part() -> None:
        parts._record_part(Version.objects.get(), file, 0, by_sha(sha(CONTENT)))

    begun, refused = meet("datasets.uploads.announcement.wall_clock", start_over, note_part)
    assert begun is None
    assert isinstance(refused, NotFound)
    assert not Part.objects.exists()


def test_content_that_a_new_file_references_is_not_deleted(uploader: Uploader, meet: Meet) -> None:
    """No version has the content any more when it is announced again."""
    announcement.take_out(actor=uploader.actor, place=uploader.place, file_id=uploader.upload("a.csv", CONTENT).pk)

    def announce() -> File:
        return uploader.announce("b.csv", CONTENT, sha(CONTENT))

    meet("datasets.uploads.announcement.wall_clock", announce, lambda: garbage_collection.doom(wall_clock()))
    assert File.objects.get().blob == Blob.objects.get(doomed=None)
