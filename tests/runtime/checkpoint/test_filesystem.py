"""Files of checkpoints on a disk: past the page cache if possible, and the same bytes in any case."""

from __future__ import annotations

import errno
import mmap
import os

import pytest

from runtime.checkpoint.filesystem import LocalFiles
from tests.recording_disk import RecordingDisk

BUFFER = 4 << 20
SIZES = [0, 1, 4095, 4096, 4097, BUFFER - 1, BUFFER, BUFFER + 1, 2 * BUFFER + 5000]


def written(directory, sizes):
    files = LocalFiles(directory)
    parts = [bytes([65 + number % 26]) * size for number, size in enumerate(sizes)]
    draft = files.create("file")
    for part in parts:
        draft.write(part)
    draft.sync()
    draft.close()
    with files.open("file") as file:
        return file.read() == b"".join(parts)


@pytest.mark.parametrize("size", SIZES)
def test_a_file_has_what_was_written_and_no_byte_more(tmp_path, size):
    assert written(tmp_path, [size])


def test_parts_of_any_size_follow_one_another(tmp_path):
    assert written(tmp_path, [16, 1 << 20, 16, 3 << 20, 24, BUFFER, 7])


def test_a_file_system_without_direct_writing_stores_the_same_bytes(tmp_path, monkeypatch):
    plain = os.open

    def refusing(path, flags, *mode, **options):
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return plain(path, flags, *mode, **options)

    monkeypatch.setattr(os, "open", refusing)
    assert written(tmp_path, [BUFFER + 1, 10])


def test_one_that_finds_out_later_has_the_same_too(tmp_path, monkeypatch):
    plain, refused = os.write, []

    def refusing(file, data):
        if not refused:
            refused.append(file)
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return plain(file, data)

    monkeypatch.setattr(os, "write", refusing)
    assert written(tmp_path, [BUFFER + 1, 10])
    assert refused


def test_a_failed_write_is_raised_at_the_latest_when_the_file_is_synced(tmp_path, monkeypatch):
    def full(file, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    draft = LocalFiles(tmp_path).create("file")
    monkeypatch.setattr(os, "write", full)
    draft.write(bytes(BUFFER))
    with pytest.raises(OSError, match="No space left"):
        draft.sync()
    draft.close()


def test_a_file_that_is_there_is_never_written_over(tmp_path):
    assert written(tmp_path, [10])
    with pytest.raises(FileExistsError):
        LocalFiles(tmp_path).create("file")


def test_a_write_of_which_the_system_takes_a_part_is_gone_on_with(tmp_path, monkeypatch):
    write, sizes = os.write, []

    def short(descriptor, part):
        sizes.append(len(part))
        return write(descriptor, part[: max(4096, len(part) // 8192 * 4096)])

    monkeypatch.setattr(os, "write", short)
    assert written(tmp_path, [BUFFER + 5000])
    assert len(sizes) > 2


def test_a_file_its_name_and_the_name_of_its_directory_are_on_the_disk(tmp_path, monkeypatch):
    disk = RecordingDisk(monkeypatch)
    files = LocalFiles(tmp_path / "job" / "1")
    draft = files.create("file")
    draft.write(b"x")
    draft.sync()
    draft.close()
    files.sync_directory()
    assert disk.steps == ["sync file", "sync 1/", "sync job/"]


def test_memory_that_is_short_leaves_no_descriptor_and_no_file(tmp_path, monkeypatch):
    closed, close = [], os.close
    monkeypatch.setattr(os, "close", lambda file: (closed.append(file), close(file)))

    def short(*_):
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(mmap, "mmap", short)
    with pytest.raises(OSError, match="Cannot allocate"):
        LocalFiles(tmp_path).create("file")
    assert len(closed) == 1
    assert LocalFiles(tmp_path).names() == []


def test_a_file_system_that_takes_no_advice_has_the_file_too(tmp_path, monkeypatch):
    def refusing(*_):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(
        "runtime.checkpoint.filesystem._open_direct", lambda path: (os.open(path, os.O_WRONLY | os.O_CREAT), False)
    )
    monkeypatch.setattr(os, "posix_fadvise", refusing)
    assert written(tmp_path, [BUFFER + 1, 10])
