"""Files of the usual programs are read correctly, or refused with the format to convert them to."""

from __future__ import annotations

import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from runtime.data import catalogue
from runtime.data.catalogue import HasChunks
from runtime.data.dataset import BadDataset
from runtime.data.errors import FormatError
from runtime.data.formats import arrays
from runtime.messages import data as messages
from tests.messages import pattern

# Written with pandas 3.1 (pyarrow 26) and h5py 3.16: columns a (integers), b (text), c (a number is missing), t (days).
SAMPLES = Path(__file__).with_name("samples")


def rows_of(path: Path) -> list[Any]:
    task = SimpleNamespace(chunks=catalogue.chunks(catalogue.locate(str(path))), ranges=None)
    return list(catalogue.read_task(cast(HasChunks, task)))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("h5py.h5", pattern(messages.HDF5_UNSUPPORTED)),
        ("pandas.csv.zip", pattern(messages.ZIP_UNSUPPORTED)),
        ("pandas.csv.bz2", pattern(messages.FILE_PACKED, packing="bzip2")),
        ("pandas.csv.xz", pattern(messages.FILE_PACKED, packing="xz")),
        ("pandas.pkl", pattern(messages.PICKLE_UNSUPPORTED)),
    ],
)
def test_a_file_of_another_kind_is_refused_with_a_remedy(name: str, words: str) -> None:
    with pytest.raises(BadDataset, match=words):
        catalogue.locate(str(SAMPLES / name))


@pytest.mark.parametrize("name", ["pandas.csv", "pandas.csv.gz", "pandas.tsv", "pandas-excel.csv"])
def test_csv_files_of_pandas_are_read(name: str) -> None:
    assert rows_of(SAMPLES / name)[1] == {"a": "2", "b": 'y,"q"\nz', "c": "", "t": "2026-01-02"}


@pytest.mark.formats
@pytest.mark.parametrize("name", ["pandas.parquet", "pandas.feather"])
def test_columnar_files_of_pandas_are_read(name: str) -> None:
    row = rows_of(SAMPLES / name)[1]
    assert (row["a"], row["b"], row["t"]) == (2, 'y,"q"\nz', datetime.datetime(2026, 1, 2))
    assert row["c"] is None or np.isnan(row["c"])


@pytest.mark.formats
def test_the_compression_that_pandas_chooses_for_feather_is_refused_with_a_remedy() -> None:
    with pytest.raises(FormatError, match=pattern(messages.ARROW_COMPRESSION_UNSUPPORTED)):
        rows_of(SAMPLES / "pandas-lz4.feather")


def test_arrays_that_are_too_large_to_be_unpacked_at_once_are_refused_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros(1000), y=np.zeros(1000))
    monkeypatch.setattr(arrays, "MAX_CHUNK_BYTES", 10_000)
    with pytest.raises(FormatError, match=pattern(messages.COMPRESSED_ARRAYS_TOO_LARGE)):
        rows_of(tmp_path / "a.npz")
