"""Checksum of a file, computed while its parts arrive."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from datasets.checksums import Running
from datasets.manifest import Parts
from datasets.storage.base import StorageError
from datasets.uploads import upload_verification
from datasets.uploads.upload_verification import Gathering, Readings

CONTENT = bytes(range(34))
PARTS = Parts(len(CONTENT), 10)
PATIENCE = 30.0


@pytest.fixture
def file(tmp_path: Path) -> Gathering:
    path = tmp_path / "gathers"
    path.write_bytes(CONTENT)
    return Gathering(uuid4(), path, PARTS)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the numbers of the parts that were read, in order."""
    numbers: list[int] = []
    reads = upload_verification.read_part

    def noting(file: Gathering, number: int, digest: Running) -> None:
        reads(file, number, digest)
        numbers.append(number)

    monkeypatch.setattr(upload_verification, "read_part", noting)
    return numbers


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_the_checksum_is_that_of_the_stored_bytes(file: Gathering) -> None:
    found = Readings().finish(file, [1, 2, 3, 4], PATIENCE)
    assert (found.sha256, found.done) == (sha(CONTENT), len(CONTENT))


def test_an_empty_file_has_a_checksum_too(tmp_path: Path) -> None:
    found = Readings().finish(Gathering(uuid4(), tmp_path / "none", Parts(0, 10)), [], PATIENCE)
    assert (found.sha256, found.done) == (sha(b""), 0)


def test_parts_that_were_read_early_are_not_read_again_at_the_end(file: Gathering, read: list[int]) -> None:
    readings = Readings()
    for there in ([1], [1, 2], [1, 2, 3]):
        readings.follow(file, there)
    assert readings.finish(file, [1, 2, 3, 4], PATIENCE).sha256 == sha(CONTENT)
    assert read == [0, 1, 2, 3]


@pytest.mark.invariant(
    "The checksum of a file is that of the bytes on disk, even if a part is replaced after it was read."
)
def test_a_part_that_was_replaced_after_it_was_read_is_read_again(
    file: Gathering, monkeypatch: pytest.MonkeyPatch
) -> None:
    three = threading.Event()
    reads = upload_verification.read_part

    def noting(file: Gathering, number: int, digest: Running) -> None:
        reads(file, number, digest)
        if number == 2:
            three.set()

    monkeypatch.setattr(upload_verification, "read_part", noting)
    readings = Readings()
    readings.follow(file, [1, 2, 3])
    assert three.wait(PATIENCE)
    changed = CONTENT[:10] + b"!" * 10 + CONTENT[20:]
    file.path.write_bytes(changed)
    assert readings.finish(file, [1, 7, 3, 4], PATIENCE).sha256 == sha(changed)


def test_a_repeated_request_waits_for_the_same_reading(
    file: Gathering, read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    held = threading.Event()
    reads: Callable[..., None] = upload_verification.read_part
    monkeypatch.setattr(upload_verification, "read_part", lambda *given: held.wait() and reads(*given))
    readings = Readings()
    assert readings.finish(file, [1, 2, 3, 4], 0.01) == upload_verification.Progress(0)
    held.set()
    assert readings.finish(file, [1, 2, 3, 4], PATIENCE).sha256 == sha(CONTENT)
    assert read == [0, 1, 2, 3]


def test_an_unreadable_file_is_reported_and_read_again_once_it_is_readable(file: Gathering) -> None:
    readings = Readings()
    file.path.write_bytes(CONTENT[:15])
    with pytest.raises(StorageError, match="shorter than its parts"):
        readings.finish(file, [1, 2, 3, 4], PATIENCE)
    file.path.write_bytes(CONTENT)
    assert readings.finish(file, [1, 2, 3, 4], PATIENCE).sha256 == sha(CONTENT)


def test_a_file_that_is_removed_while_it_is_read_does_no_harm(file: Gathering) -> None:
    readings = Readings()
    file.path.unlink()
    readings.follow(file, [1])
    with pytest.raises(StorageError) as error:
        readings.finish(file, [1, 2, 3, 4], PATIENCE)
    assert "No such file" in str(error.value)


def test_the_oldest_of_very_many_files_are_read_again_at_their_end(
    file: Gathering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload_verification, "READINGS_LIMIT", 2)
    readings = Readings()
    files = [Gathering(uuid4(), file.path, PARTS) for _ in range(5)]
    for each in files:
        readings.follow(each, [1, 2])
    assert [readings.is_followed(each) for each in files] == [False, False, False, True, True]
    assert {readings.finish(each, [1, 2, 3, 4], PATIENCE).sha256 for each in files} == {sha(CONTENT)}


def no_thread(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_without_a_free_thread_it_is_read_at_the_next_request(file: Gathering, monkeypatch: pytest.MonkeyPatch) -> None:
    readings = Readings()
    with monkeypatch.context() as shortage:
        shortage.setattr(threading.Thread, "start", no_thread)
        readings.follow(file, [1, 2])
        with pytest.raises(StorageError, match="can't start new thread"):
            readings.finish(file, [1, 2, 3, 4], 0.1)
    assert readings.finish(file, [1, 2, 3, 4], PATIENCE).sha256 == sha(CONTENT)


def test_without_memory_it_is_read_at_the_next_request(file: Gathering, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(file: Gathering, number: int, digest: Running) -> None:
        raise MemoryError

    readings = Readings()
    with monkeypatch.context() as shortage:
        shortage.setattr(upload_verification, "read_part", no_memory)
        with pytest.raises(StorageError, match="not enough memory"):
            readings.finish(file, [1, 2, 3, 4], 5.0)
    assert readings.finish(file, [1, 2, 3, 4], PATIENCE).sha256 == sha(CONTENT)
