"""Conversion of records into shards: names, contents, and no files left behind."""

from __future__ import annotations

import tarfile

import numpy as np
import pytest

from runtime.__main__ import main
from runtime.data.convert import convert, records
from runtime.data.errors import FormatError
from runtime.errors import UsageError
from runtime.messages import data as messages
from tests.messages import pattern
from tests.runtime.data.formats import makers
from tests.runtime.data.formats.makers import plain

ROWS = [f"record {number}".encode() for number in range(10)]


@pytest.mark.parametrize(
    ("to", "ending"), [("recordio", ".recordio"), ("tfrecord", ".tfrecord"), ("values", ".recordio")]
)
def test_ten_records_in_four_shards_are_there_once_under_exact_names(to, ending, tmp_path):
    paths = convert(ROWS, tmp_path, 4, "digits", to)
    assert [path.name for path in paths] == [f"digits-0000{number}-of-00003{ending}" for number in range(4)]
    assert sorted(tmp_path.iterdir()) == paths
    assert [len(list(records([path]))) for path in paths] == [3, 3, 2, 2]
    assert sorted(records(paths)) == ROWS


def test_a_thousand_shards_are_numbered_to_999(tmp_path):
    assert convert([], tmp_path, 1000, "a")[-1].name == "a-00999-of-00999.recordio"


def test_samples_become_a_tar_file_that_tar_itself_reads(tmp_path):
    (path,) = convert(makers.SAMPLES, tmp_path, 1, "train", "webdataset")
    assert list(records([path])) == makers.SAMPLES
    with tarfile.open(path) as archive:
        assert archive.getnames() == ["train/数字 1.png", "train/数字 1.cls", "train/b.png", "train/b.cls"]


def test_a_list_of_images_becomes_samples(tmp_path):
    path, rows = makers.make("list", tmp_path)
    (shard,) = convert(records([path]), tmp_path, 1, "train", "webdataset")
    found = [(sample["bin"], sample["cls"].decode()) for sample in records([shard])]
    assert found == [(content, str(label)) for content, label in rows]


def test_the_same_records_give_the_same_bytes(tmp_path):
    for to in ("recordio", "values", "webdataset", "tfrecord"):
        (one,), (other,) = (convert(ROWS, tmp_path / name, 1, to, to) for name in ("one", "other"))
        assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("name", ["csv", "jsonl", "npy", "npz", "webdataset", "list", "features"])
def test_records_of_any_format_become_values(name, tmp_path):
    path, rows = makers.make(name, tmp_path)
    shards = convert(records([path], name), tmp_path / "out", 1, "data", "values")
    assert [plain(row) for row in records(shards)] == [plain(row) for row in rows]


def test_a_record_that_has_no_form_there_is_named_and_nothing_is_left(tmp_path):
    with pytest.raises(FormatError, match=pattern(messages.RECORD_NOT_WRITABLE)):
        convert([b"one", 2], tmp_path, 3, "data", "tfrecord")
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_the_source_leaves_nothing(tmp_path):
    def rows():
        yield b"one"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        convert(rows(), tmp_path, 2, "data")
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(tmp_path):
    convert(ROWS, tmp_path, 2, "data")
    with pytest.raises(UsageError, match=pattern(messages.OUTPUT_EXISTS)):
        convert([], tmp_path, 2, "data")
    assert sorted(records(sorted(tmp_path.iterdir()))) == ROWS


@pytest.mark.parametrize(
    ("shards", "prefix", "to", "why"),
    [
        (0, "a", "recordio", pattern(messages.SHARD_COUNT_INVALID, most=1000)),
        (1001, "a", "recordio", pattern(messages.SHARD_COUNT_INVALID, most=1000)),
        (1, "../a", "recordio", pattern(messages.FILE_PREFIX_INVALID)),
        (1, "a", "csv", pattern(messages.TARGET_FORMAT_UNKNOWN, name="'csv'")),
    ],
)
def test_invalid_options_are_reported(shards, prefix, to, why, tmp_path):
    with pytest.raises(UsageError, match=why):
        convert([], tmp_path, shards, prefix, to)


def test_a_sample_whose_key_leads_out_of_its_folder_is_refused(tmp_path):
    with pytest.raises(FormatError, match=pattern(messages.SAMPLE_NAME_OUTSIDE_FOLDER)):
        convert([{"__key__": "../../a", "jpg": b""}], tmp_path, 1, "data", "webdataset")


# --- The command -----------------------------------------------------------------------------------------------------
def test_the_command_converts_lists_and_shows(tmp_path, capsys):
    path, rows = makers.make("csv", tmp_path)
    command = ["data", "convert", str(path), "--to", "values", "--out", str(tmp_path / "out"), "--shards", "2"]
    assert main(command) == 0
    shards = capsys.readouterr().out.split()
    assert shards == [str(tmp_path / "out" / f"data-0000{number}-of-00001.recordio") for number in range(2)]
    assert main(["data", "ls", *shards]) == 0
    assert "RecordIO of values: 2 records in 1 chunks" in capsys.readouterr().out
    assert main(["data", "cat", "--count", "1", shards[0]]) == 0
    assert capsys.readouterr().out == f"{rows[0]!r}\n"


def test_the_command_lists_the_formats(capsys):
    assert main(["data", "formats"]) == 0
    assert "WebDataset" in capsys.readouterr().out


def test_the_command_reports_unreadable_files(tmp_path, capsys):
    (tmp_path / "data.csv").write_bytes(b"\xff\xfe")
    for arguments in (
        ["ls", "data.csv"],
        ["cat", "data.csv"],
        ["cat", "missing.csv"],
        ["convert", "data.csv", "--out", "out"],
    ):
        command = [
            "data",
            *[
                str(tmp_path / word) if word.endswith(("csv", "out")) and word != "--out" else word
                for word in arguments
            ],
        ]
        assert main(command) == 1
        assert capsys.readouterr().err.endswith(".\n")
    assert not list((tmp_path / "out").glob("*"))


def test_arrays_are_written_as_they_are(tmp_path):
    row = {"x": np.arange(6, dtype=">i2").reshape(2, 3), "y": np.float32(1.5)}
    (found,) = records(convert([row], tmp_path, 1, "data", "values"))
    assert (found["x"].tolist(), found["x"].dtype, float(found["y"])) == ([[0, 1, 2], [3, 4, 5]], np.dtype("<i2"), 1.5)
