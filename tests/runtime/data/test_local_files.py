"""Files of this machine as a dataset, for scripts that run alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtime.data import catalogue
from runtime.data.dataset import BadDataset, UnknownDataset
from runtime.messages import data as messages
from tests.messages import pattern


def rows(name: str, *data_path: Path, split: str = "train") -> list[object]:
    info = catalogue.locate(name, data_path)
    return [record for chunk in catalogue.chunks(info, split) for record in catalogue.read_chunk(chunk)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a.csv").write_text("x\n1\n2\n")
    (tmp_path / "mine" / "b.csv").write_text("x\n3\n")
    (tmp_path / "mine" / "test.csv").write_text("x\n4\n")
    (tmp_path / "mine" / "README.txt").write_text("What this is.\n")
    (tmp_path / "mine" / ".hidden.csv").write_text("x\n5\n")
    return tmp_path


def test_a_file(folder: Path) -> None:
    assert rows(str(folder / "mine" / "b.csv")) == [{"x": "3"}]


def test_a_file_is_for_training_whatever_its_name(folder: Path) -> None:
    assert rows(str(folder / "mine" / "test.csv")) == [{"x": "4"}]


def test_a_pattern(folder: Path) -> None:
    assert rows(f"{folder}/mine/[ab].csv") == [{"x": "1"}, {"x": "2"}, {"x": "3"}]


def test_a_folder_is_read_as_the_portal_would(folder: Path) -> None:
    assert rows(str(folder / "mine")) == [{"x": "1"}, {"x": "2"}, {"x": "3"}]
    assert rows(str(folder / "mine"), split="test") == [{"x": "4"}]


def test_a_path_relative_to_where_the_script_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert rows("mine/b.csv") == rows("./mine/b.csv") == [{"x": "3"}]


def test_a_folder_below_the_search_path_has_its_name(folder: Path) -> None:
    assert rows("mine", folder) == [{"x": "1"}, {"x": "2"}, {"x": "3"}]


def test_a_dataset_of_that_name_comes_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "public" / "digits").mkdir(parents=True)
    (folder / "public" / "digits" / "a.csv").write_text("x\n1\n")
    monkeypatch.chdir(folder)
    assert catalogue.locate("public/digits").title


def test_by_name_alone_no_file_is_found(folder: Path) -> None:
    for name in (str(folder / "mine"), "mine"):
        with pytest.raises(UnknownDataset):
            catalogue.find(name, [folder])


def test_nothing_of_the_project_itself_is_a_dataset() -> None:
    with pytest.raises(UnknownDataset):
        catalogue.locate("storage", [catalogue.SHIPPED])


def test_files_of_no_known_format_are_reported(tmp_path: Path) -> None:
    (tmp_path / "a.docx").write_bytes(b"x")
    with pytest.raises(BadDataset, match=pattern(messages.FORMAT_UNSUPPORTED)):
        catalogue.locate(str(tmp_path))


def test_a_missing_path_is_reported_like_an_unknown_name(tmp_path: Path) -> None:
    for name in (f"{tmp_path}/*.csv", str(tmp_path / "a.csv")):
        with pytest.raises(UnknownDataset, match="There is no dataset"):
            catalogue.locate(name)
