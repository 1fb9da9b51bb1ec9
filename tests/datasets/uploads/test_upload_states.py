"""Changes between the states of an upload: what starts over, and what stays."""

from __future__ import annotations

import pytest

from datasets.models import Blob, File
from datasets.storage import default_storage
from datasets.uploads import staging, upload_states
from datasets.uploads.content import key_of
from tests.datasets.conftest import CONTENT, Uploader, sha

pytestmark = pytest.mark.django_db(transaction=True)


def staged(uploader: Uploader) -> File:
    """Return a file whose parts are all there, and which is being completed."""
    file = uploader.announce("a", CONTENT)
    uploader.parts(file, CONTENT)
    File.objects.update(frozen=True)
    file.refresh_from_db()
    return file


def is_staged(file: File) -> bool:
    return staging.path_of(default_storage().staging(), file.staging).exists()


def test_a_file_that_starts_over_has_another_staging_number_and_no_parts(uploader: Uploader) -> None:
    before, file = staged(uploader), File.objects.get()
    upload_states.start_over(file)
    now = File.objects.get()
    assert now.staging == file.staging != before.staging
    assert not now.frozen and not now.parts.exists() and not is_staged(before)


def test_an_unfrozen_file_keeps_the_parts_that_are_on_the_disk(uploader: Uploader) -> None:
    file = staged(uploader)
    upload_states.unfreeze(file, default_storage().staging())
    now = File.objects.get()
    assert (now.staging, now.frozen, now.parts.count()) == (file.staging, False, 4)


def test_an_unfrozen_file_whose_bytes_are_lost_starts_over(uploader: Uploader) -> None:
    file, number = staged(uploader), File.objects.get().staging
    staging.discard(default_storage().staging(), file.staging)
    upload_states.unfreeze(file, default_storage().staging())
    now = File.objects.get()
    assert now.staging != number and not now.frozen and not now.parts.exists()


def test_an_unfrozen_file_that_is_complete_does_not_start_over(uploader: Uploader) -> None:
    file = uploader.upload("a", CONTENT)
    upload_states.unfreeze(file, default_storage().staging())
    assert File.objects.get().staging == file.staging and File.objects.get().complete


def test_a_file_is_handed_over_when_its_content_has_a_row_and_its_staging_file_is_gone(uploader: Uploader) -> None:
    file, folder = staged(uploader), default_storage().staging()
    file.sha256 = sha(CONTENT)
    dataset = file.version.dataset
    assert not upload_states.is_handed_over(file, folder)
    Blob.objects.create(
        key=key_of(file, file.sha256),
        namespace=dataset.namespace,
        home=dataset,
        sha256=file.sha256,
        size=file.size,
        created=file.created,
    )
    assert not upload_states.is_handed_over(file, folder)
    staging.discard(folder, file.staging)
    assert upload_states.is_handed_over(file, folder)
