"""``job.load``: a whole split of any format equals what its reader returns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime import contract, dist
from runtime.errors import UsageError
from runtime.messages import training as messages
from tests.messages import pattern
from tests.runtime.data.formats.makers import FILES, OF_PYARROW, make

# Formats that need a description or several files are tested below.
NAMED_BY_THE_FILE = [
    pytest.param(name, marks=pytest.mark.formats) if name in OF_PYARROW else name
    for name in sorted(FILES)
    if name not in {"features", "example", "image"}
]
# In place of rows that cannot form a batch.
ROWS: dict[str, list[Any]] = {
    "values": [(1, "x"), (2, "y")],
    "webdataset": [{"__key__": "a", "bin": b"x", "cls": b"7"}],
}


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dist.Job:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(dist, "_job", None)
    monkeypatch.setattr("sys.excepthook", lambda *error: None)
    monkeypatch.delenv(contract.DATA_PATH, raising=False)
    return dist.init()


def joined(batches: list[Any]) -> Any:
    """The values of batches concatenated, by column."""
    first = batches[0]
    if isinstance(first, dict):
        return {name: joined([batch[name] for batch in batches]) for name in first}
    if isinstance(first, tuple):
        return tuple(joined(list(columns)) for columns in zip(*batches, strict=True))
    return [value for batch in batches for value in batch.tolist()]


@pytest.mark.parametrize("name", NAMED_BY_THE_FILE)
def test_a_split_of_any_format_is_what_the_reader_gives(name: str, job: dist.Job, tmp_path: Path) -> None:
    path, _rows = make(name, tmp_path, ROWS.get(name))
    loaded = job.load(str(path), split="train")
    assert repr(joined([loaded])) == repr(joined(list(job.reader(str(path), batch=1000)())))


def test_a_shipped_dataset_is_features_and_labels(job: dist.Job) -> None:
    x, y = job.load("public/digits", split="test")
    assert (x.shape[1:], x.dtype, y.dtype, len(x)) == ((64,), np.float32, np.int64, len(y))


def test_columns_of_files_of_different_formats_come_together(job: dist.Job, tmp_path: Path) -> None:
    (tmp_path / "mixed").mkdir()
    (tmp_path / "mixed" / "a.jsonl").write_text('{"x": 1}\n')
    (tmp_path / "mixed" / "b.csv").write_text("x\ntext\n")
    assert job.load("mixed", split="train")["x"].tolist() == [1, "text"]


def test_a_folder_per_class_is_pictures_and_classes(job: dist.Job, tmp_path: Path) -> None:
    for name in ("train/cat/1.jpg", "train/dog/2.jpg", "train/dog/3.jpg", "test/cat/4.jpg", "README.txt"):
        path = tmp_path / "pets" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\xff\xd8\xff" if path.suffix == ".jpg" else b"about")
    x, y = job.load("pets", split="train", decode=lambda record: record)
    assert (len(x), y.tolist()) == (3, ["dog", "cat", "dog"])
    (batch,) = job.reader("pets", batch=3, decode=lambda record: record)()
    assert batch[1].tolist() == ["dog", "cat", "dog"]


def test_examples_of_tensorflow_are_columns_by_the_option_of_the_reader(job: dist.Job, tmp_path: Path) -> None:
    path, _rows = make("example", tmp_path, [{"x": [1.5, 2.5], "y": 1}, {"x": [3.5, 4.5], "y": 2}])
    path = path.rename(tmp_path / "data.tfrecord")
    loaded = job.load(str(path), split="train", decode=dist.example)
    assert (loaded["x"].tolist(), loaded["x"].dtype.name, loaded["y"].tolist()) == (
        [[1.5, 2.5], [3.5, 4.5]],
        "float32",
        [1, 2],
    )
    assert job.load(str(path), split="train")[0].startswith(b"\n")  # without it, bytes


def test_what_the_script_decodes_is_put_together(job: dist.Job, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,2\n3,4\n")
    x, y = job.load("a.csv", split="train", decode=lambda row: (float(row["x"]), int(row["y"])))
    assert (x.tolist(), y.tolist()) == ([1, 3], [2, 4])


def test_a_split_without_records_is_an_error_message(job: dist.Job, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n")
    with pytest.raises(UsageError, match=pattern(messages.SPLIT_EMPTY)):
        job.load("a.csv", split="train")
