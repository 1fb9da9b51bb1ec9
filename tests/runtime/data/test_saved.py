"""Datasets as HuggingFace writes them: ``samples`` was made by ``save_to_disk`` of datasets 5.2.0."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from runtime.data import catalogue, local_files, saved
from runtime.data.dataset import BadDataset
from runtime.data.errors import FormatError
from runtime.data.format_selection import Unread
from runtime.messages import data as messages
from tests.messages import pattern

SAMPLES = Path(__file__).resolve().parent / "formats" / "samples"
STATE = json.dumps({"_data_files": [{"filename": "data-0.arrow"}]})


def left_out(**files: str) -> dict[str, Unread]:
    """Call with names that have ``__`` in place of folders and ``_`` in place of the dot."""
    named = {name.replace("__", "/").replace("_json", ".json").replace("_arrow", ".arrow"): text.encode()
             for name, text in files.items()}  # fmt: skip
    return dict(saved.left_out(named, named.__getitem__))


def test_files_that_state_json_does_not_list_have_no_records() -> None:
    files = {"a/state.json": STATE.encode(), "a/data-0.arrow": b"", "a/cache-1.arrow": b"", "b/cache-1.arrow": b""}
    assert saved.left_out(files, files.__getitem__) == {"a/cache-1.arrow": Unread.UNLISTED}


def test_a_shard_that_is_missing_is_named() -> None:
    with pytest.raises(FormatError, match=pattern(messages.LISTED_FILE_MISSING)):
        left_out(a__state_json=STATE)


@pytest.mark.invariant("A dataset that HuggingFace saved is read whole or refused.")
def test_rows_in_an_order_of_their_own_are_refused() -> None:
    state = json.dumps({"_data_files": [{"filename": "data.arrow"}], "_indices_data_files": [{"filename": "i.arrow"}]})
    with pytest.raises(FormatError, match=pattern(messages.ROW_ORDER_SEPARATE)):
        left_out(state_json=state, data_arrow="")


def test_a_split_that_is_missing_is_named() -> None:
    with pytest.raises(FormatError, match=pattern(messages.SPLIT_STATE_MISSING)):
        left_out(dataset_dict_json='{"splits": ["train", "test"]}', train__state_json='{"_data_files": []}')


@pytest.mark.parametrize("text", ["{", "[]x", '{"_data_files": [1]}', "{}"])
def test_a_damaged_state_beside_shards_is_refused(text: str) -> None:
    with pytest.raises(FormatError, match=pattern(messages.SAVED_DATASET_INVALID)):
        left_out(state_json=text, data_arrow="")


@pytest.mark.parametrize("text", ["{", '{"epoch": 3}', "[1]", "null"])
def test_somebody_else_s_state_json_is_left_alone(text: str) -> None:
    assert left_out(state_json=text, rows_csv="") == {}


# --- As the package writes it ----------------------------------------------------------------------------------------
needs_pyarrow = pytest.mark.formats


@pytest.mark.invariant("A dataset that HuggingFace saved is read whole or refused.")
@needs_pyarrow
def test_a_saved_dataset_is_read_with_arrays_and_pictures() -> None:
    info = local_files.find(str(SAMPLES / "saved"))
    assert info is not None and (info.splits, info.format) == (("train",), "arrow")
    rows = [row for chunk in info.listing("train") for row in catalogue.read_chunk(chunk)]
    assert [(row["text"], row["label"]) for row in rows] == [("one", 0), ("two", 1), ("数字", 0)]
    assert [(row["x"].dtype, row["grid"].shape, row["grid"].dtype) for row in rows] == [("f4", (1, 2), "i4")] * 3
    np.testing.assert_array_equal([row["grid"][0] for row in rows], [[1, 2], [3, 4], [5, 6]])
    assert all(row["image"].startswith(b"\x89PNG") for row in rows)


@needs_pyarrow
def test_saved_splits_are_splits_and_others_have_no_records() -> None:
    info = local_files.find(str(SAMPLES / "saved_dict"))
    assert info is not None and sorted(info.splits) == ["test", "train"]
    texts = {
        split: [row["text"] for chunk in info.listing(split) for row in catalogue.read_chunk(chunk)]
        for split in info.splits
    }
    assert texts == {"train": ["one", "two", "数字"], "test": ["one"]}


@pytest.mark.invariant("A dataset that HuggingFace saved is read whole or refused.")
@needs_pyarrow
def test_a_saved_dataset_of_which_a_shard_is_missing_is_refused(tmp_path: Path) -> None:
    shutil.copytree(SAMPLES / "saved", tmp_path / "saved")
    (tmp_path / "saved" / "data-00001-of-00002.arrow").unlink()
    with pytest.raises(BadDataset, match=pattern(messages.LISTED_FILE_MISSING, name="'data-00001-of-00002.arrow'")):
        local_files.find(str(tmp_path / "saved"))


@needs_pyarrow
def test_files_of_a_cache_beside_the_shards_add_no_records(tmp_path: Path) -> None:
    shutil.copytree(SAMPLES / "saved", tmp_path / "saved")
    shutil.copy(tmp_path / "saved" / "data-00000-of-00002.arrow", tmp_path / "saved" / "cache-1.arrow")
    info = local_files.find(str(tmp_path / "saved"))
    assert info is not None and sum(chunk.records for chunk in info.listing("train")) == 3
