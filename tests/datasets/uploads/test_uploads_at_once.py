"""Concurrent uploads of the same file: each uses the other's parts, or is refused; the bytes never mix."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import connection

from datasets import messages
from datasets.errors import ChecksumMismatch
from datasets.models import Blob, Dataset, File, Part
from portal.common.errors import Conflict, NotFound
from tests.datasets.conftest import CONTENT, Uploader, limit, sha, stored
from tests.messages import pattern
from tests.personas import Personas

pytestmark = pytest.mark.django_db


def at_once(*actions: Any) -> list[Any]:
    """Run all functions at the same moment. Return the result or exception of each."""
    barrier = threading.Barrier(len(actions))
    results: list[Any] = [None] * len(actions)

    def run(index: int) -> None:
        barrier.wait()
        try:
            results[index] = actions[index]()
        except Exception as error:  # noqa: BLE001
            results[index] = error
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(actions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@pytest.mark.django_db(transaction=True)
def test_one_of_two_uploads_that_each_fit_alone_is_refused(uploader: Uploader, dataset: Dataset) -> None:
    limit(dataset, 50)
    results = at_once(lambda: uploader.announce("a", CONTENT), lambda: uploader.announce("b", CONTENT))
    assert sorted(type(one).__name__ for one in results) == ["File", "QuotaExceeded"]


@pytest.mark.django_db(transaction=True)
def test_two_uploaders_of_the_same_file_help_each_other(uploader: Uploader, personas: Personas) -> None:
    other = Uploader(personas.owner, number=uploader.number)
    results = at_once(lambda: uploader.upload("a", CONTENT), lambda: other.upload("a", CONTENT))
    ended = [one for one in results if isinstance(one, File)]
    # One of them may get an error because the file is being completed already; nothing else may go wrong.
    assert ended and all(isinstance(one, File | Conflict | NotFound) for one in results), results
    assert stored(File.objects.get(path="a")) == CONTENT


@pytest.mark.django_db(transaction=True)
def test_the_same_content_from_two_sides_at_once_is_kept_once(uploader: Uploader) -> None:
    results = at_once(*(lambda path=path: uploader.upload(path, CONTENT) for path in "abcd"))
    assert all(isinstance(one, File) for one in results), results
    assert len({one.blob_id for one in results}) == 1
    assert Blob.objects.filter(kept__isnull=False, doomed=None).count() == 1


@pytest.mark.django_db(transaction=True)
def test_the_bytes_of_a_part_that_came_twice_at_once_count_and_not_its_recorded_checksum(
    uploader: Uploader,
) -> None:
    file = uploader.announce("a", CONTENT[:10])
    uploader.part(file, 0, b"0123456789")
    Part.objects.update(checksum=sha(CONTENT[:10]))  # recorded last, by the request that was first at the range
    with pytest.raises(ChecksumMismatch):
        uploader.complete(file, CONTENT[:10])


def test_a_part_with_other_bytes_cannot_change_a_file_that_is_being_completed(uploader: Uploader) -> None:
    file = uploader.announce("a", CONTENT)
    uploader.parts(file, CONTENT)
    File.objects.filter(pk=file.pk).update(frozen=True)
    with pytest.raises(Conflict, match=pattern(messages.FILE_NOT_ACCEPTING_PARTS)):
        uploader.part(file, 0, b"!" * 10)
    assert stored(uploader.complete(file, CONTENT)) == CONTENT
