"""Uploads of files: announced, received in parts, completed; also repeated, late and damaged."""

from __future__ import annotations

import io
import threading
import zlib
from typing import Any

import pytest

from datasets import checksums, messages, services
from datasets.checksums import Checksum
from datasets.errors import ChecksumMismatch, CutOff, Exists, Incomplete, WrongLength
from datasets.models import Blob, Dataset, File, Part, Version
from datasets.storage import default_storage
from datasets.storage.base import StorageError
from datasets.uploads import announcement, parts, staging, upload_verification
from portal.common.errors import Conflict, Forbidden, NotFound, QuotaExceeded, TooLarge, ValidationFailed
from tests.datasets.conftest import CONTENT, Uploader, by_sha, gathered, limit, sha, stored
from tests.factories import make_member
from tests.messages import pattern
from tests.personas import Personas

pytestmark = pytest.mark.django_db


# --- Normal upload ---------------------------------------------------------------------------------------------------
def test_a_file_arrives_as_it_was_sent(uploader: Uploader) -> None:
    assert stored(uploader.upload("a/b.bin", CONTENT)) == CONTENT


def test_parts_may_come_in_any_order(uploader: Uploader) -> None:
    file = uploader.announce("a", CONTENT)
    for number in (3, 0, 2, 1):
        there = uploader.part(file, number, CONTENT[number * 10 : number * 10 + 10])
    assert there == [0, 1, 2, 3]
    assert stored(uploader.complete(file, CONTENT)) == CONTENT


def test_an_empty_file_has_no_parts(uploader: Uploader) -> None:
    assert stored(uploader.upload("empty", b"")) == b""


def test_parts_come_by_their_crc_32_too(uploader: Uploader) -> None:
    file = uploader.announce("a", CONTENT)
    for number in range(4):
        piece = CONTENT[number * 10 : number * 10 + 10]
        by_crc(uploader, file, number, piece, f"{zlib.crc32(piece):08x}")
    assert parts.checksums_of(file)[0] == f"{zlib.crc32(CONTENT[:10]):08x}"
    assert stored(uploader.complete(file, CONTENT)) == CONTENT


def test_a_file_is_read_while_its_parts_arrive(uploader: Uploader, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    third = threading.Event()
    reads = upload_verification.read_part

    def noting(*given: Any) -> None:
        reads(*given)
        read.append(given[1])
        if given[1] == 2:
            third.set()

    monkeypatch.setattr(upload_verification, "read_part", noting)
    file = uploader.announce("a", CONTENT)
    for number in range(3):
        uploader.part(file, number, CONTENT[number * 10 : number * 10 + 10])
    assert third.wait(30)
    uploader.part(file, 3, CONTENT[30:])
    assert stored(uploader.complete(file, CONTENT)) == CONTENT
    assert read == [0, 1, 2, 3]


def test_a_complete_file_leaves_nothing_in_staging(uploader: Uploader) -> None:
    uploader.upload("a", CONTENT)
    assert gathered() == []
    assert Part.objects.count() == 0


def test_an_upload_resumes_where_it_stopped(uploader: Uploader) -> None:
    file = uploader.announce("a", CONTENT)
    uploader.part(file, 1, CONTENT[10:20])
    again = uploader.announce("a", CONTENT)
    assert (again.pk, parts.numbers_of(again)) == (file.pk, [1])


def test_completing_a_file_is_idempotent(uploader: Uploader) -> None:
    file = uploader.upload("a", CONTENT)
    assert uploader.complete(file, CONTENT).blob == file.blob
    assert Blob.objects.count() == 1


def test_a_part_that_is_there_is_not_read_again(uploader: Uploader) -> None:
    file = uploader.announce("a", CONTENT)
    uploader.part(file, 0, CONTENT[:10])
    broken: Any = None  # reading it would raise
    there = parts.receive_part(
        actor=uploader.actor,
        place=uploader.place,
        file_id=file.pk,
        number=0,
        checksum=by_sha(sha(CONTENT[:10])),
        length=10,
        body=broken,
    )
    assert there == [0]


def by_crc(uploader: Uploader, file: File, number: int, piece: bytes, crc: str) -> list[int]:
    return parts.receive_part(
        actor=uploader.actor,
        place=uploader.place,
        file_id=file.pk,
        number=number,
        checksum=Checksum(checksums.CRC32, crc),
        length=len(piece),
        body=io.BytesIO(piece),
    )


# --- Bad input -------------------------------------------------------------------------------------------------------
def test_a_damaged_part_is_refused_and_the_earlier_one_stays(uploader: Uploader) -> None:
    file = uploader.announce("a", CONTENT)
    uploader.part(file, 0, CONTENT[:10])
    with pytest.raises(ChecksumMismatch, match=pattern(messages.PART_CHECKSUM_MISMATCH)):
        uploader.part(file, 0, b"x" * 10, digest=sha(b"y" * 10))
    uploader.parts(file, CONTENT)
    assert stored(uploader.complete(file, CONTENT)) == CONTENT


def test_a_part_that_does_not_fit_its_crc_32_is_refused(uploader: Uploader) -> None:
    with pytest.raises(ChecksumMismatch, match=pattern(messages.PART_CHECKSUM_MISMATCH)):
        by_crc(uploader, uploader.announce("a", CONTENT), 0, CONTENT[:10], "00000000")


@pytest.mark.parametrize(
    ("headers", "named"),
    [
        ({}, "X-Content-SHA256"),
        ({"X-Content-CRC32": "12"}, "X-Content-CRC32"),
        ({"X-Content-SHA256": "no", "X-Content-CRC32": "00000000"}, "X-Content-SHA256"),
    ],
)
def test_a_part_without_a_valid_checksum_is_refused(headers: dict[str, str], named: str) -> None:
    with pytest.raises(checksums.BadChecksum, match=pattern(messages.PART_CHECKSUM_INVALID)) as caught:
        checksums.announced(headers)
    assert caught.value.header == named


def test_a_part_that_is_sent_again_with_other_bytes_replaces_what_was_read_of_it(uploader: Uploader) -> None:
    file = uploader.announce("a", CONTENT)
    uploader.parts(file, CONTENT)
    uploader.part(file, 1, b"!" * 10)
    changed = CONTENT[:10] + b"!" * 10 + CONTENT[20:]
    assert stored(uploader.complete(file, changed)) == changed


def until_read(file: File) -> None:
    """Wait until the portal has read back the parts of the file that have arrived."""
    readings = upload_verification.READINGS
    with readings._changed:
        of = readings._readings[file.staging]
        assert readings._changed.wait_for(lambda: of.done == file.size, 60)


@pytest.mark.parametrize("read", [False, True], ids=["before it was read", "after it was read"])
def test_a_part_lost_in_a_power_cut_is_requested_again(uploader: Uploader, read: bool) -> None:
    file = uploader.announce("a", CONTENT)
    uploader.parts(file, CONTENT)
    if read:
        until_read(file)
    staging.discard(default_storage().staging(), file.staging)
    with pytest.raises(StorageError, match=pattern(messages.PARTS_UNREADABLE)):
        uploader.complete(file, CONTENT)
    assert stored(uploader.upload("a", CONTENT)) == CONTENT


@pytest.mark.parametrize(("piece", "error"), [(b"x" * 9, WrongLength), (b"x" * 11, TooLarge)])
def test_a_part_of_another_length_is_refused(uploader: Uploader, piece: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        uploader.part(uploader.announce("a", CONTENT), 0, piece)


@pytest.mark.parametrize(("sent", "error"), [(b"x" * 9, CutOff), (b"x" * 11, WrongLength)])
def test_a_body_that_is_not_as_long_as_announced_is_refused(
    uploader: Uploader, sent: bytes, error: type[Exception]
) -> None:
    file = uploader.announce("a", CONTENT)
    with pytest.raises(error):
        parts.receive_part(
            actor=uploader.actor,
            place=uploader.place,
            file_id=file.pk,
            number=0,
            checksum=by_sha(sha(sent)),
            length=10,
            body=io.BytesIO(sent),
        )
    assert parts.numbers_of(file) == []
    uploader.parts(file, CONTENT)
    assert stored(uploader.complete(file, CONTENT)) == CONTENT


def test_a_part_that_the_file_does_not_have_is_not_there(uploader: Uploader) -> None:
    with pytest.raises(NotFound, match=pattern(messages.PART_NOT_FOUND, count=4, number=4)):
        uploader.part(uploader.announce("a", CONTENT), 4, b"x")


def test_a_file_is_not_complete_while_parts_are_missing(uploader: Uploader) -> None:
    file = uploader.announce("a", CONTENT)
    uploader.part(file, 1, CONTENT[10:20])
    with pytest.raises(Incomplete) as caught:
        uploader.complete(file, CONTENT)
    assert caught.value.extra["missing"] == [0, 2, 3]


def test_a_file_that_changed_while_it_was_sent_is_sent_again_from_the_start(
    uploader: Uploader, django_capture_on_commit_callbacks: Any
) -> None:
    file = uploader.announce("a", CONTENT)
    uploader.parts(file, CONTENT)
    changed = CONTENT[:-1] + b"?"
    with (
        django_capture_on_commit_callbacks(execute=True),
        pytest.raises(ChecksumMismatch, match=pattern(messages.FILE_CHECKSUM_MISMATCH)),
    ):
        uploader.complete(file, changed)
    assert gathered() == []
    assert stored(uploader.upload("a", changed)) == changed


def test_a_file_announced_with_another_content_forgets_the_parts_of_the_old_one(uploader: Uploader) -> None:
    old = uploader.announce("a", CONTENT, digest=sha(CONTENT))
    uploader.part(old, 0, CONTENT[:10])
    changed = b"!" + CONTENT[1:]
    again = uploader.announce("a", changed, digest=sha(changed))
    assert parts.numbers_of(again) == []


@pytest.mark.parametrize("path", ["../a", "/a", "a\x00", ".a", ""])
def test_a_bad_path_is_refused(uploader: Uploader, path: str) -> None:
    with pytest.raises(ValidationFailed) as caught:
        uploader.announce(path, CONTENT)
    assert "path" in caught.value.errors


@pytest.mark.parametrize("path", ["A/B", "a/B", "a/b/c", "a", "ａ/b"])
def test_a_path_that_cannot_lie_beside_another_is_refused(uploader: Uploader, path: str) -> None:
    uploader.announce("a/b", CONTENT)
    with pytest.raises(Exists):
        uploader.announce(path, CONTENT)


def test_the_two_ways_to_write_an_accent_are_one_path(uploader: Uploader) -> None:
    first = uploader.announce("é", CONTENT)
    assert uploader.announce("e\u0301", CONTENT).pk == first.pk


def test_another_size_at_the_same_path_is_refused_with_the_one_that_is_there(uploader: Uploader) -> None:
    file = uploader.announce("a", CONTENT)
    with pytest.raises(Exists) as caught:
        uploader.announce("a", CONTENT + b"x")
    assert caught.value.extra["id"] == file.pk


# --- Deduplication ---------------------------------------------------------------------------------------------------
def test_the_same_content_is_kept_once(uploader: Uploader) -> None:
    one, other = uploader.upload("a", CONTENT), uploader.upload("b", CONTENT)
    assert one.blob == other.blob
    assert Blob.objects.filter(doomed=None).count() == 1


def test_content_of_the_namespace_need_not_be_sent(uploader: Uploader) -> None:
    uploader.upload("a", CONTENT)
    assert uploader.announce("b", CONTENT, digest=sha(CONTENT)).complete


def test_announcing_without_a_checksum_is_answered_with_hash_first_where_it_may_save_sending(
    uploader: Uploader,
) -> None:
    uploader.upload("a", CONTENT)
    first = uploader.begin()

    def asked(path: str, content: bytes, digest: str = "") -> bool:
        place, size = uploader.place, len(content)
        return announcement.announce(actor=uploader.actor, place=place, path=path, size=size, sha256=digest).hash_first

    assert first.number == 2
    assert asked("same size", CONTENT[::-1]) and not asked("other size", CONTENT[1:])
    assert not asked("known", CONTENT, sha(CONTENT)) and asked("known", CONTENT)


def test_a_length_reveals_nothing_about_other_namespaces(uploader: Uploader, personas: Personas) -> None:
    uploader.upload("a", CONTENT)
    services.create_dataset(actor=personas.stranger, namespace_name="elsewhere", name="mine")
    stranger = Uploader(personas.stranger, ns="elsewhere")
    stranger.begin()
    caught = announcement.announce(actor=stranger.actor, place=stranger.place, path="b", size=len(CONTENT))
    assert not caught.hash_first


@pytest.mark.invariant("A checksum reveals nothing about the datasets of another namespace.")
def test_nobody_learns_by_a_checksum_what_another_namespace_keeps(uploader: Uploader, personas: Personas) -> None:
    uploader.upload("a", CONTENT)
    services.create_dataset(actor=personas.stranger, namespace_name="elsewhere", name="mine")
    stranger = Uploader(personas.stranger, ns="elsewhere")
    stranger.begin()
    assert not stranger.announce("b", CONTENT, digest=sha(CONTENT)).complete
    assert stranger.upload("b", CONTENT).blob != File.objects.get(path="a").blob


def test_a_checksum_with_another_size_is_not_the_same_content(uploader: Uploader) -> None:
    uploader.upload("a", CONTENT)
    assert not uploader.announce("b", CONTENT[1:], digest=sha(CONTENT)).complete


# --- Permissions -----------------------------------------------------------------------------------------------------
def test_a_viewer_cannot_send_and_a_stranger_sees_nothing(uploader: Uploader, personas: Personas) -> None:
    file = uploader.announce("a", CONTENT)
    with pytest.raises(Forbidden):
        Uploader(personas.viewer).part(file, 0, CONTENT[:10])
    with pytest.raises(NotFound):
        Uploader(personas.stranger).part(file, 0, CONTENT[:10])


def test_a_file_of_another_version_is_not_reached_through_this_one(uploader: Uploader) -> None:
    file = uploader.announce("a", CONTENT)
    uploader.begin()
    with pytest.raises(NotFound):
        uploader.part(file, 0, CONTENT[:10])


# --- Quota -----------------------------------------------------------------------------------------------------------
def test_more_than_the_quota_is_refused_before_any_byte(uploader: Uploader, dataset: Dataset) -> None:
    limit(dataset, 40)
    uploader.announce("a", CONTENT)
    with pytest.raises(QuotaExceeded) as caught:
        uploader.announce("b", CONTENT)
    assert caught.value.extra["numbers"]["storage"] == {
        "needed": 34,
        "held": 34,
        "limit": 40,
        "free": 6,
    }
    assert not File.objects.filter(path="b").exists()


def test_expected_bytes_are_reserved_until_the_version_is_sealed(uploader: Uploader, dataset: Dataset) -> None:
    limit(dataset, 100)
    second = Uploader(uploader.actor)
    second.begin(expected_bytes=60)
    with pytest.raises(QuotaExceeded):
        uploader.begin(expected_bytes=60)
    second.upload("a", CONTENT)
    second.seal()
    uploader.begin(expected_bytes=60)


def test_the_same_content_costs_once(uploader: Uploader, dataset: Dataset) -> None:
    limit(dataset, 40)
    uploader.upload("a", CONTENT)
    assert uploader.announce("b", CONTENT, digest=sha(CONTENT)).complete


def test_removing_a_file_frees_its_storage(uploader: Uploader, dataset: Dataset) -> None:
    limit(dataset, 40)
    file = uploader.announce("a", CONTENT)
    announcement.take_out(actor=uploader.actor, place=uploader.place, file_id=file.pk)
    uploader.announce("b", CONTENT)


# --- Sealing ---------------------------------------------------------------------------------------------------------
def test_an_incomplete_version_is_not_sealed(uploader: Uploader) -> None:
    with pytest.raises(Incomplete, match=pattern(messages.VERSION_EMPTY)):
        uploader.seal()
    uploader.announce("half", CONTENT)
    with pytest.raises(Incomplete) as caught:
        uploader.seal()
    assert caught.value.extra["files"] == ["half"]


def test_a_sealed_version_accepts_no_files(uploader: Uploader) -> None:
    file = uploader.upload("a", CONTENT)
    uploader.seal()
    for deed in (
        lambda: uploader.announce("b", CONTENT),
        lambda: announcement.take_out(actor=uploader.actor, place=uploader.place, file_id=file.pk),
    ):
        with pytest.raises(Conflict, match=pattern(messages.VERSION_SEALING)):
            deed()


def test_a_part_that_comes_after_the_version_is_gone_is_refused(uploader: Uploader) -> None:
    file = uploader.announce("a", CONTENT)
    services.delete_version(actor=uploader.actor, ns="team", name="mine", number=1)
    with pytest.raises(NotFound):
        uploader.part(file, 0, CONTENT[:10])
    assert Version.objects.get().state == "deleted"


def test_a_member_of_two_namespaces_keeps_them_apart(uploader: Uploader, personas: Personas) -> None:
    """Reading in one and writing in the other transfers no content."""
    uploader.upload("a", CONTENT)
    make_member(personas.stranger.memberships.get().namespace, personas.developer)
    services.create_dataset(actor=personas.developer, namespace_name="elsewhere", name="mine")
    second = Uploader(personas.developer, ns="elsewhere")
    second.begin()
    assert not second.announce("b", CONTENT, digest=sha(CONTENT)).complete
