"""Selection of the files of an output directory that are sent, whatever else a process left there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from runtime.agent.delivery import artifacts


def names(directory: Path) -> list[str]:
    return [found.name for found in artifacts.select(directory).files]


def test_only_regular_files_are_selected(tmp_path: Path) -> None:
    (tmp_path / "model.npz").write_bytes(b"m")
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "folder").symlink_to("/etc")
    os.mkfifo(tmp_path / "pipe")
    assert names(tmp_path) == ["model.npz"]


@pytest.mark.parametrize("name", [b"\xff\xfe", b"new\nline", b"back\\slash", b"n" * 201], ids=repr)
def test_a_refused_name_is_reported_and_hides_no_other_file(tmp_path: Path, name: bytes) -> None:
    (tmp_path / "model.npz").write_bytes(b"m")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_bytes(b"x")
    selection = artifacts.select(tmp_path)
    assert [found.name for found in selection.files] == ["model.npz"]
    assert selection.left_out[0].startswith("1 file is not kept because of the name")


def test_a_tree_that_is_deeper_than_the_kernel_follows_hides_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "model.npz").write_bytes(b"m")
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(60):
        os.mkdir("d" * 100, dir_fd=here)
        below = os.open("d" * 100, os.O_RDONLY, dir_fd=here)
        os.close(os.open("f" * 150, os.O_CREAT, dir_fd=below))
        os.close(here)
        here = below
    os.close(here)
    selection = artifacts.select(tmp_path)
    assert [found.name for found in selection.files] == ["model.npz"]
    assert selection.left_out[1] == f"files are not kept because '{'f' * 150}' cannot be read: File name too long"


def test_an_unlistable_folder_is_reported_and_hides_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.npz").write_bytes(b"m")
    (tmp_path / "plots").mkdir()
    listed = os.scandir

    def failing(path: str) -> object:
        if str(path).endswith("plots"):
            raise OSError(5, "Input/output error", path)
        return listed(path)

    monkeypatch.setattr(os, "scandir", failing)
    selection = artifacts.select(tmp_path)
    assert [found.name for found in selection.files] == ["model.npz"]
    assert selection.left_out == ("files are not kept because 'plots' cannot be read: Input/output error",)


def test_a_file_that_is_too_large_is_named_and_hides_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "model.npz").write_bytes(b"m")
    with (tmp_path / "dump").open("wb") as file:
        file.truncate(artifacts.LARGEST_TOTAL + 1)
    selection = artifacts.select(tmp_path)
    assert [found.name for found in selection.files] == ["model.npz"]
    assert selection.left_out[0].startswith("1 file is not kept, dump the first of them: a replica may leave")


def test_of_too_many_files_the_first_are_kept(tmp_path: Path) -> None:
    for number in range(artifacts.LARGEST_COUNT + 2):
        (tmp_path / f"{number:05}").touch()
    selection = artifacts.select(tmp_path)
    assert len(selection.files) == artifacts.LARGEST_COUNT
    assert selection.left_out[0].startswith("2 files are not kept, 01000 the first of them")
