"""Layout of a version of a dataset that the portal prepares for a job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runtime.data import catalogue, version_layout
from runtime.data.dataset import BadDataset, UnknownDataset
from runtime.data.formats import registry

ROWS = {"train/a.csv": "x,y\n1,2\n3,4\n", "train/b.csv": "x,y\n5,6\n", "test.csv": "x,y\n7,8\n"}


def entry(path: Path, name: str) -> dict[str, Any]:
    spans = list(registry.named("csv").index(path, 1 << 20))
    records = sum(span.records for span in spans)
    return {"path": name, "size": 1, "sha256": "0" * 64, "format": "csv", "records": records, "chunks": spans}


def lay_out(root: Path, version: int = 3) -> Path:
    folder = root / "team" / "mine"
    files = []
    for name, text in ROWS.items():
        path = folder / version_layout.FILES / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        files.append(entry(path, name))
    plain = {"path": "notes.md", "size": 1, "sha256": "0" * 64, "format": "", "records": None, "chunks": []}
    manifest = {"format": 2, "dataset": "team/mine", "version": version, "files": [*files, plain]}
    (folder / version_layout.MANIFEST).write_text(json.dumps(manifest))
    (folder / version_layout.VERSION).write_text(json.dumps(version_layout.describe(manifest, "csv")))
    return folder


def test_it_is_found_by_name_and_has_its_version(tmp_path: Path) -> None:
    lay_out(tmp_path)
    info = catalogue.find("team/mine", [tmp_path])
    assert (info.name, info.version, info.format) == ("team/mine@3", 3, "csv")
    assert dict(info.records) == {"train": 3, "test": 1}
    assert "team/mine" in catalogue.names([tmp_path])


def test_it_is_found_by_its_version_and_by_no_other(tmp_path: Path) -> None:
    lay_out(tmp_path)
    assert catalogue.find("team/mine@3", [tmp_path]).name == "team/mine@3"
    with pytest.raises(UnknownDataset, match="team/mine@4"):
        catalogue.find("team/mine@4", [tmp_path])


def test_a_shipped_dataset_has_one_version() -> None:
    assert catalogue.find("public/digits@1").name == "public/digits"
    with pytest.raises(UnknownDataset):
        catalogue.find("public/digits@2")


def test_its_records_are_those_of_the_files_that_are_for_training(tmp_path: Path) -> None:
    lay_out(tmp_path)
    info = catalogue.find("team/mine", [tmp_path])
    rows = [row for chunk in catalogue.chunks(info) for row in catalogue.read_chunk(chunk)]
    assert rows == [{"x": "1", "y": "2"}, {"x": "3", "y": "4"}, {"x": "5", "y": "6"}]
    (test,) = catalogue.chunks(info, "test")
    assert list(catalogue.read_chunk(test)) == [{"x": "7", "y": "8"}]


@pytest.mark.parametrize("file", [version_layout.VERSION, version_layout.MANIFEST])
@pytest.mark.parametrize("content", ["", "[]", '{"files": [{}], "splits": {"train": "x"}}', "[" * 100_000])
def test_a_damaged_index_is_an_error(tmp_path: Path, file: str, content: str) -> None:
    (lay_out(tmp_path) / file).write_text(content)
    with pytest.raises(BadDataset, match=file):
        catalogue.chunks(catalogue.find("team/mine", [tmp_path]))
