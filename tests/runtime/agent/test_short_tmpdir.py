"""Short names for temporary directories."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest

from runtime.agent import short_tmpdir


@pytest.fixture
def deep(tmp_path: Path) -> Path:
    directory = tmp_path / ("a" * 100) / "tmp"
    directory.mkdir(parents=True)
    return directory


def test_a_manager_of_processes_starts_in_a_deep_directory(deep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = short_tmpdir.make(deep)
    with monkeypatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(short))
        patch.setitem(multiprocessing.process.current_process()._config, "tempdir", None)
        with multiprocessing.Manager() as manager:
            assert manager.list([1])[0] == 1
    short_tmpdir.remove(deep)
    assert not os.path.lexists(short)


def test_two_directories_have_two_names(deep: Path) -> None:
    other = deep.parent / "other"
    names = {short_tmpdir.make(deep), short_tmpdir.make(other)}
    assert len(names) == 2
    short_tmpdir.remove(deep)
    short_tmpdir.remove(other)


def test_a_short_directory_keeps_its_name() -> None:
    assert short_tmpdir.make(Path("/short")) == Path("/short")


def test_foreign_links_are_neither_used_nor_removed(deep: Path) -> None:
    link = short_tmpdir.make(deep)
    link.unlink()
    link.symlink_to("/dev")
    try:
        assert short_tmpdir.make(deep) == deep
        short_tmpdir.remove(deep)
        assert link.readlink() == Path("/dev")
    finally:
        link.unlink()


def test_the_name_of_a_removed_directory_is_reused_by_the_next_agent(deep: Path, tmp_path: Path) -> None:
    left_behind = short_tmpdir.make(deep)
    deep.rmdir()
    other = tmp_path / ("b" * 100) / "tmp"
    other.mkdir(parents=True)
    short_tmpdir.make(other)
    assert not os.path.lexists(left_behind)
    short_tmpdir.remove(other)


def test_a_name_in_use_is_left_alone(deep: Path, tmp_path: Path) -> None:
    in_use = short_tmpdir.make(deep)
    short_tmpdir.make(tmp_path / ("b" * 100))
    assert in_use.exists()
    short_tmpdir.remove(deep)
