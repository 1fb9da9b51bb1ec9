"""A dataset on a machine with a temporary shortage of descriptors: it exists, whole, and nothing is blamed."""

from __future__ import annotations

import errno
import json
import os
import zipfile
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from runtime import patience
from runtime.data import catalogue
from runtime.data.catalogue import Unreadable
from runtime.data.dataset import BadDataset, DatasetInfo
from runtime.data.formats import images
from runtime.errors import Lost
from runtime.messages import data as messages
from runtime.trainer.tasks import task_reading
from tests.messages import pattern


class Short:
    """Replacement of ``Path.open`` that fails with an error the given number of times."""

    def __init__(self, number: int, times: int) -> None:
        self.number, self.left, self.really = number, times, Path.open

    def __call__(self, path: Path, *arguments: Any, **options: Any) -> Any:
        if self.left:
            self.left -= 1
            raise OSError(self.number, os.strerror(self.number), str(path))
        return self.really(path, *arguments, **options)


@pytest.fixture
def run_short(monkeypatch: pytest.MonkeyPatch) -> Any:
    def short(number: int, times: int) -> None:
        found = Short(number, times)
        monkeypatch.setattr(Path, "open", lambda path, *arguments, **options: found(path, *arguments, **options))

    monkeypatch.setattr(patience, "PAUSE_SECONDS", 0.0)
    return short


@pytest.fixture(params=["described", "version"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a search path that contains ``mine``."""
    folder = tmp_path / "mine"
    (folder / "files").mkdir(parents=True)
    place = folder / "rows.npy" if request.param == "described" else folder / "files" / "rows.npy"
    np.save(place, np.arange(6).reshape(3, 2))
    if request.param == "described":
        splits = {"train": {"records": 3, "files": [{"path": "rows.npy"}]}}
        about = {"title": "t", "task": "", "source": "", "licence": "", "format": "npy", "splits": splits}
        (folder / "dataset.json").write_text(json.dumps(about))
    else:
        size = place.stat().st_size
        chunk = [size - 48, 48, 3, None]
        manifest = {"files": [{"path": "rows.npy", "format": "npy", "chunks": [chunk]}]}
        (folder / "manifest.json").write_text(json.dumps(manifest))
        about = {"dataset": "mine", "version": 1, "format": "npy", "splits": {"train": 3}}
        (folder / "version.json").write_text(json.dumps(about))
    return tmp_path


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM], ids=errno.errorcode.__getitem__)
def test_a_shortage_that_passes_is_waited_for(kept: Path, run_short: Any, number: int) -> None:
    run_short(number, 3)
    info = catalogue.find("mine", [kept])
    run_short(number, 3)
    (chunk,) = catalogue.chunks(info)
    run_short(number, 3)
    assert [row.tolist() for row in catalogue.read_chunk(chunk)] == [[0, 1], [2, 3], [4, 5]]


class TestThatLasts:
    @pytest.fixture(autouse=True)
    def _no_patience(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(patience, "PATIENCE_SECONDS", 0.0)

    def test_a_dataset_is_neither_unknown_nor_damaged(self, kept: Path, run_short: Any) -> None:
        run_short(errno.EMFILE, 1000)
        with pytest.raises(OSError, match="Too many open files"):
            catalogue.find("mine", [kept])

    def test_its_listing_is_not_damaged(self, kept: Path, run_short: Any) -> None:
        info: DatasetInfo = catalogue.find("mine", [kept])
        run_short(errno.EMFILE, 1000)
        with pytest.raises(OSError, match="Too many open files"):
            catalogue.chunks(info)

    def test_a_shortage_while_reading_a_chunk_restarts_and_does_not_blame_the_file(
        self, kept: Path, run_short: Any
    ) -> None:
        (chunk,) = catalogue.chunks(catalogue.find("mine", [kept]))
        run_short(errno.EMFILE, 1000)
        with pytest.raises(Lost, match=pattern(messages.PATH_TEMPORARILY_UNREADABLE)):
            list(catalogue.read_chunk(chunk))


def test_other_errors_are_of_the_file(kept: Path, run_short: Any) -> None:
    info = catalogue.find("mine", [kept])
    (chunk,) = catalogue.chunks(info)
    run_short(errno.EIO, 1000)
    with pytest.raises(Unreadable, match="Input/output error"):
        list(catalogue.read_chunk(chunk))
    with pytest.raises(BadDataset):
        catalogue.find("mine", [kept])


def test_a_task_that_cannot_be_read_for_now_is_no_bad_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_task: object) -> Any:
        raise Lost("rows.npy cannot be read for now.")

    monkeypatch.setattr(task_reading, "read_placed", gone)
    with pytest.raises(Lost):
        list(task_reading._records(cast(Any, None)))


class TestFormatsThatExplainErrors:
    """A shortage is not damage of the file, whatever error the format raises."""

    def test_of_a_file_that_a_list_names(self, tmp_path: Path, run_short: Any) -> None:
        (tmp_path / "a.bin").write_bytes(b"content")
        (tmp_path / "files.list").write_text("a.bin\t1\n")
        (chunk,) = catalogue.chunks(catalogue.locate(str(tmp_path / "files.list")))
        (span,) = images.index(tmp_path / "files.list", 1 << 20)
        records = images.read(tmp_path / "files.list", span)
        run_short(errno.EMFILE, 1000)
        with pytest.raises(OSError, match="Too many open files"):
            images._content(tmp_path / "files.list", tmp_path, "a.bin")
        run_short(errno.EMFILE, 1)
        assert [bytes(content) for content, _ in catalogue.read_chunk(chunk)] == [b"content"]
        assert [bytes(content) for content, _ in records] == [b"content"]

    def test_of_packed_arrays(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        np.savez_compressed(tmp_path / "a.npz", x=np.arange(3))
        (chunk,) = catalogue.chunks(catalogue.locate(str(tmp_path / "a.npz")))
        monkeypatch.setattr(patience, "PAUSE_SECONDS", 0.0)
        opened, left = zipfile.ZipFile, [errno.EMFILE]

        def short(path: Path) -> zipfile.ZipFile:
            if left:
                raise OSError(left.pop(), "Too many open files")
            return opened(path)

        monkeypatch.setattr(zipfile, "ZipFile", short)
        assert [row["x"] for row in catalogue.read_chunk(chunk)] == [0, 1, 2]

    @pytest.mark.formats
    def test_of_parquet(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from pyarrow import parquet

        (chunk,) = catalogue.chunks(catalogue.locate(str(Path(__file__).parent / "formats/samples/pandas.parquet")))
        monkeypatch.setattr(patience, "PAUSE_SECONDS", 0.0)
        opened, left = parquet.ParquetFile, [errno.EMFILE]

        def short(path: Path) -> Any:
            if left:
                raise OSError(left.pop(), "Too many open files")
            return opened(path)

        monkeypatch.setattr(parquet, "ParquetFile", short)
        assert [row["a"] for row in catalogue.read_chunk(chunk)] == [1, 2]
