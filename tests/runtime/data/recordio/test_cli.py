"""``python -m runtime recordio``: output and exit codes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from runtime.__main__ import main
from runtime.data.recordio import Reader, Writer
from runtime.messages import data as messages
from tests.messages import mentions


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "words.recordio"
    with path.open("wb") as file, Writer(file, "gzip", max_chunk_bytes=10) as writer:
        for record in (b"alpha", b"two\nlines", b"\xff\xfe", "数字".encode()):
            writer.write(record)
    return path


@pytest.fixture
def damaged(path):
    content = bytearray(path.read_bytes())
    content[30] ^= 1
    path.write_bytes(content)
    return path


def test_ls_lists_chunks(path, capsys):
    assert main(["recordio", "ls", str(path)]) == 0
    *chunks, total = capsys.readouterr().out.splitlines()
    assert len(chunks) == 3
    assert "offset 0  " in chunks[0] and chunks[0].endswith("1 records  gzip")
    assert total.endswith("4 records in 3 chunks")


def test_cat_writes_a_record_per_line_with_binary_data_escaped(path, capsys):
    assert main(["recordio", "cat", str(path)]) == 0
    assert capsys.readouterr().out.splitlines() == ["alpha", r"b'two\nlines'", r"b'\xff\xfe'", "数字"]


def test_cat_writes_raw_bytes_on_request(path):
    command = [sys.executable, "-m", "runtime", "recordio", "cat", "--raw", "--first", "1", "--count", "2", str(path)]
    assert subprocess.run(command, capture_output=True, check=True).stdout == b"two\nlines\xff\xfe"


def test_verify_finds_a_whole_file_whole(path, capsys):
    assert main(["recordio", "verify", str(path)]) == 0
    assert capsys.readouterr().out.endswith("4 records in 3 chunks; whole\n")


def test_verify_names_the_damage_and_goes_on_to_the_next_file(damaged, tmp_path, capsys):
    (tmp_path / "empty").touch()
    assert main(["recordio", "verify", str(tmp_path / "missing"), str(damaged), str(tmp_path / "empty")]) == 1
    output = capsys.readouterr()
    assert "offset 0  " in output.out and mentions(output.out, messages.CHUNK_CHECKSUM_MISMATCH)
    assert "3 records in 2 chunks; damaged in 1 places, save the rest with: repair" in output.out
    assert "0 records in 0 chunks; whole" in output.out
    assert output.err == f"{tmp_path / 'missing'} cannot be read: No such file or directory.\n"


def test_repair_saves_whole_chunks_and_reports_losses(damaged, tmp_path, capsys):
    target = tmp_path / "repaired"
    assert main(["recordio", "repair", str(damaged), str(target)]) == 1
    assert "bytes of" in capsys.readouterr().out
    with Reader(target) as reader:
        assert list(reader) == [b"two\nlines", b"\xff\xfe", "数字".encode()]


def test_repair_of_a_whole_file_loses_nothing(path, tmp_path):
    assert main(["recordio", "repair", str(path), str(tmp_path / "same")]) == 0
    assert (tmp_path / "same").read_bytes() == path.read_bytes()


def test_repair_overwrites_nothing(damaged, tmp_path, capsys):
    target = tmp_path / "kept"
    target.write_bytes(b"mine")
    assert main(["recordio", "repair", str(damaged), str(target)]) == 1
    assert "exists already" in capsys.readouterr().err
    assert target.read_bytes() == b"mine"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["kept", "words.recordio"]


def test_a_damaged_file_is_a_message_and_not_a_traceback(damaged, capsys):
    assert main(["recordio", "cat", str(damaged)]) == 1
    assert mentions(capsys.readouterr().err, messages.CHUNK_CHECKSUM_MISMATCH)


def test_wrong_usage_ends_with_two():
    with pytest.raises(SystemExit) as ended:
        main(["recordio", "mend"])
    assert ended.value.code == 2
