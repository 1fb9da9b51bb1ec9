"""Datasets by name, and the two shipped ones."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from runtime.data import catalogue, record_codec, recordio
from runtime.data.catalogue import Unreadable
from runtime.data.dataset import BadDataset, UnknownDataset
from runtime.data.errors import RecordError
from runtime.messages import data as messages
from tests.messages import pattern

ROOT = Path(__file__).parents[3]


def make(root: Path, name: str, rows: int = 4, **changes: object) -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    with (folder / "train.recordio").open("wb") as file, recordio.Writer(file, max_chunk_bytes=0) as writer:
        for row in range(rows):
            writer.write(record_codec.encode([float(row)], row))
    body = {
        "title": "A test",
        "task": "regression",
        "features": {"shape": [1]},
        "source": "here",
        "licence": "none",
        "splits": {"train": {"records": rows, "files": [{"path": "train.recordio"}]}},
    }
    (folder / "dataset.json").write_text(json.dumps({**body, **changes}))
    return folder


@pytest.mark.parametrize(
    ("name", "shape", "train", "test", "dtype"),
    [("public/digits", (64,), 1437, 360, np.int64), ("public/diabetes", (10,), 353, 89, np.float32)],
)
def test_the_shipped_datasets_are_found_and_whole(name, shape, train, test, dtype):
    info = catalogue.find(name)
    assert (info.features, dict(info.records)) == (shape, {"train": train, "test": test})
    for split, rows in info.records.items():
        x, y = catalogue.load(info, split)
        assert (x.shape, x.dtype, y.shape, y.dtype) == ((rows, *shape), np.float32, (rows,), dtype)


def test_digits_are_scaled_to_one_and_come_in_twenty_chunks():
    info = catalogue.find("public/digits")
    x, y = catalogue.load(info, "train")
    assert (x.min(), x.max()) == (0.0, 1.0)
    assert set(y.tolist()) == set(range(10))
    assert len(catalogue.chunks(info, "train")) == 20


@pytest.mark.parametrize("name", ["digits", "diabetes"])
def test_the_description_matches_the_files(name):
    folder = ROOT / "datasets" / "public" / name
    body = json.loads((folder / "dataset.json").read_text())
    for split in body["splits"].values():
        for file in split["files"]:
            content = (folder / file["path"]).read_bytes()
            assert (file["sha256"], file["bytes"]) == (hashlib.sha256(content).hexdigest(), len(content))


def test_the_script_makes_the_shipped_files_again(tmp_path):
    script = ROOT / "scripts" / "make_public_datasets.py"
    subprocess.run([sys.executable, str(script), str(tmp_path)], check=True, stdout=subprocess.DEVNULL)
    shipped = ROOT / "datasets" / "public"
    files = sorted(path.relative_to(shipped) for path in shipped.rglob("*") if path.is_file())
    made = sorted(path.relative_to(tmp_path / "public") for path in tmp_path.rglob("*") if path.is_file())
    assert made == files
    for file in files:
        assert (tmp_path / "public" / file).read_bytes() == (shipped / file).read_bytes(), file


def test_an_unknown_name_error_names_the_nearest():
    with pytest.raises(UnknownDataset, match=pattern(messages.DID_YOU_MEAN, name="public/digits or public/diabetes")):
        catalogue.find("public/digit")


def test_an_error_for_an_unlike_name_lists_all_names():
    with pytest.raises(UnknownDataset, match=pattern(messages.AVAILABLE_NAMES)):
        catalogue.find("zzz")


@pytest.mark.parametrize(
    "name", ["../public/digits", "/etc", "", "public/../public/digits", "public//digits", "a\nb", "a" * 5000]
)
def test_a_name_cannot_leave_the_search_path(name):
    with pytest.raises(UnknownDataset):
        catalogue.find(name)


def test_the_search_path_takes_precedence_over_shipped_datasets(tmp_path):
    make(tmp_path, "public/digits")
    assert catalogue.find("public/digits", [tmp_path]).title == "A test"


def test_own_datasets_are_listed_with_the_shipped_ones(tmp_path):
    make(tmp_path, "team/own")
    assert catalogue.names([tmp_path]) == ["public/diabetes", "public/digits", "team/own"]


def test_chunks_and_records_come_in_order(tmp_path):
    make(tmp_path, "own", rows=3)
    info = catalogue.find("own", [tmp_path])
    found = catalogue.chunks(info, "train")
    assert [chunk.records for chunk in found] == [1, 1, 1]
    assert [label for chunk in found for _features, label in catalogue.read_chunk(chunk)] == [0, 1, 2]


def test_an_unknown_split_error_lists_the_known_ones(tmp_path):
    make(tmp_path, "own")
    with pytest.raises(UnknownDataset, match=r"no split 'test'\. Available: train"):
        catalogue.chunks(catalogue.find("own", [tmp_path]), "test")


@pytest.mark.parametrize(
    "change",
    [
        {"splits": {"train": {"records": 1, "files": [{"path": "../../secret"}]}}},
        {"splits": None},
        {"features": {}},
        {"splits": {"train": {"records": "many", "files": []}}},
    ],
)
def test_a_wrong_description_is_a_message(tmp_path, change):
    make(tmp_path, "own", **change)
    with pytest.raises(BadDataset, match=pattern(messages.DATASET_DESCRIPTION_INVALID)):
        catalogue.find("own", [tmp_path])


def test_a_missing_file_is_a_message(tmp_path):
    (make(tmp_path, "own") / "train.recordio").unlink()
    with pytest.raises(BadDataset, match=pattern(messages.DATASET_FILE_UNREADABLE)):
        catalogue.chunks(catalogue.find("own", [tmp_path]))


def test_a_dataset_of_any_format_is_read_chunk_by_chunk(tmp_path):
    make(tmp_path, "own", features=None, splits={"train": {"records": 2, "files": [{"path": "train.csv"}]}})
    (tmp_path / "own" / "train.csv").write_text("rooms,price\n3,100\n4,200\n")
    info = catalogue.find("own", [tmp_path])
    found = catalogue.chunks(info)
    assert [(chunk.format, chunk.records) for chunk in found] == [("csv", 2)]
    assert [row["price"] for row in catalogue.read_chunk(found[0])] == ["100", "200"]


def test_the_description_may_name_the_format(tmp_path):
    make(tmp_path, "own", features=None, format="recordio")
    (chunk, *_others) = catalogue.chunks(catalogue.find("own", [tmp_path]))
    assert list(catalogue.read_chunk(chunk)) == [record_codec.encode([0.0], 0)]


def test_an_unknown_format_is_an_error(tmp_path):
    make(tmp_path, "own", format="recrdio")
    with pytest.raises(BadDataset, match=pattern(messages.DID_YOU_MEAN, name="recordio or tfrecord")):
        catalogue.find("own", [tmp_path])


def test_a_chunk_that_has_changed_is_no_fault_of_a_record(tmp_path):
    folder = make(tmp_path, "own", features=None, splits={"train": {"records": 1, "files": [{"path": "a.txt"}]}})
    (folder / "a.txt").write_text("one\n")
    (chunk,) = catalogue.chunks(catalogue.find("own", [tmp_path]))
    (folder / "a.txt").write_text("two\n")
    with pytest.raises(Unreadable, match=pattern(messages.FILE_CHANGED_SINCE_INDEXED)):
        list(catalogue.read_chunk(chunk))


def test_a_senseless_record_is_distinguished_from_a_damaged_file(tmp_path):
    folder = make(tmp_path, "own", features=None, splits={"train": {"records": 1, "files": [{"path": "a.jsonl"}]}})
    (folder / "a.jsonl").write_text("{\n")
    (chunk,) = catalogue.chunks(catalogue.find("own", [tmp_path]))
    with pytest.raises(RecordError, match=pattern(messages.JSON_LINE_INVALID)):
        list(catalogue.read_chunk(chunk))
