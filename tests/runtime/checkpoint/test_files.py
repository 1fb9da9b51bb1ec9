"""Files of checkpoints on a disk: past the page cache where that can be, and the same bytes in any case."""

from __future__ import annotations

import errno
import os

import pytest

from runtime.checkpoint.files import LocalFiles

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


def test_a_file_system_that_knows_no_direct_writing_has_the_same(tmp_path, monkeypatch):
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


def test_a_write_that_fails_is_told_at_the_latest_when_the_file_is_synced(tmp_path, monkeypatch):
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
