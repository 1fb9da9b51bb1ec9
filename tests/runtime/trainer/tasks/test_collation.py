"""The default conversion of records to batches."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime import contract, dist
from runtime.errors import UsageError
from runtime.messages import training as messages
from runtime.trainer.tasks import collation
from runtime.trainer.tasks.collation import stack
from tests.messages import pattern


def type_and_values(value: Any) -> tuple[str, list[Any]]:
    return str(value.dtype), value.tolist()


# --- Cells of CSV ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("cells", "dtype", "values"),
    [
        (["1", "-2", "007"], "int64", [1, -2, 7]),
        (["1", "2.5", "1e3"], "float32", [1.0, 2.5, 1000.0]),
        (["1", "x"], "object", ["1", "x"]),
        (["1_000", "2"], "object", ["1_000", "2"]),
        (["9" * 30, "1"], "float32", [pytest.approx(1e30), 1.0]),
        (["数字", ""], "object", ["数字", ""]),
    ],
)
def test_cells_are_numbers_where_all_of_a_column_are(cells: list[str], dtype: str, values: list[Any]) -> None:
    assert type_and_values(stack([{"x": cell} for cell in cells], "csv")["x"]) == (dtype, values)


def test_an_empty_cell_among_numbers_is_no_number() -> None:
    column = stack([{"x": "1"}, {"x": ""}], "csv")["x"]
    assert column.dtype == np.float32 and column[0] == 1 and np.isnan(column[1])


def test_rows_without_names_are_a_tuple_of_columns() -> None:
    x, y = stack([("1", "a"), ("2", "b")], "csv")
    assert (type_and_values(x), type_and_values(y)) == (("int64", [1, 2]), ("object", ["a", "b"]))


def test_rows_of_different_lengths_are_an_error_message() -> None:
    with pytest.raises(UsageError, match=pattern(messages.BATCH_RAGGED)):
        stack([("1",), ("1", "2")], "csv")


# --- Values that know their types ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([1, 2], "int64"),
        ([1, 2.5], "float32"),
        ([True, False], "bool"),
        ([1, 2**64 - 1], "uint64"),
        ([-1, 2**63], "object"),
        ([[1.5, 2.5], [3, 4]], "float32"),
        (["1", "2"], "object"),
        ([b"a\0", b"b"], "object"),
        ([{"a": 1}, {}], "object"),
        ([[1], [1, 2]], "object"),
        ([1, None, "x"], "object"),
        ([2**70, 1], "object"),
        ([None, None], "object"),
    ],
)
def test_columns_have_the_type_of_their_values(values: list[Any], dtype: str) -> None:
    column = stack([{"x": value} for value in values])["x"]
    assert str(column.dtype) == dtype and column.tolist() == values


def test_arrays_keep_their_type() -> None:
    assert stack([np.zeros(2, "f8"), np.ones(2, "f8")]).dtype == np.float64


@pytest.mark.parametrize("present", [1, 1.0, True])
def test_a_missing_number_or_boolean_is_no_number(present: Any) -> None:
    column = stack([{"x": present}, {"x": None}])["x"]
    assert column.dtype == np.float32 and np.isnan(column[1])


def test_rows_have_the_columns_of_all_of_them() -> None:
    columns = stack([{"a": 1}, {"b": "x", "a": 2}], "jsonl")
    assert list(columns) == ["a", "b"] and columns["b"].tolist() == [None, "x"]


def test_lists_of_one_shape_become_one_array() -> None:
    assert stack([{"x": [[1, 2]]}, {"x": [[3, 4]]}])["x"].shape == (2, 1, 2)


def test_arrays_of_one_shape_are_stacked_and_others_stay_apart() -> None:
    assert stack([np.zeros(2, "u1")] * 3).shape == (3, 2)
    assert stack([np.zeros(2), np.zeros(3)]).dtype == object


def test_bytes_keep_their_last_zeros() -> None:
    assert stack([b"a\0\0", b""]).tolist() == [b"a\0\0", b""]


# --- Formats with parts ----------------------------------------------------------------------------------------------
def npy(value: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, value)
    return file.getvalue()


def test_the_parts_of_a_sample_are_decoded_by_their_extension() -> None:
    decode = collation.decoder("webdataset")
    assert decode is not None
    sample = {"__key__": "a", "cls": b"7", "txt": "数".encode(), "json": b"[1]", "x.npy": npy([1.0]), "bin": b"\0"}
    decoded = decode(sample)
    assert decoded.pop("x.npy").tolist() == [1.0]
    assert decoded == {"__key__": "a", "cls": 7, "txt": "数", "json": [1], "bin": b"\0"}


def test_no_pickle_is_read() -> None:
    decode = collation.decoder("webdataset")
    assert decode is not None
    with pytest.raises(ValueError, match="allow_pickle"):
        decode({"__key__": "a", "npy": npy(np.array([{}], object))})


# --- A script --------------------------------------------------------------------------------------------------------
@pytest.fixture
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data" / "team" / "houses").mkdir(parents=True)
    (tmp_path / "data" / "team" / "houses" / "a.csv").write_text("rooms,town\n2,x\n3,y\n4,z\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(dist, "_job", None)
    monkeypatch.setattr("sys.excepthook", lambda *error: None)
    monkeypatch.delenv(contract.DATA_PATH, raising=False)


@pytest.mark.usefixtures("_alone")
@pytest.mark.parametrize("name", ["team/houses", "data/team/houses/a.csv", "data/team/*/*.csv"])
def test_a_script_that_runs_alone_reads_columns_by_name_or_path(name: str) -> None:
    first, second = dist.reader(name, batch=2)()
    assert type_and_values(first["rooms"]) == ("int64", [2, 3]) and type_and_values(second["town"]) == ("object", ["z"])


@pytest.mark.usefixtures("_alone")
def test_what_the_script_decodes_is_not_guessed_at() -> None:
    (batch,) = dist.reader("team/houses", batch=3, decode=lambda row: {"rooms": row["rooms"]})()
    assert batch["rooms"].tolist() == ["2", "3", "4"]
