"""Checkpoints of jobs, in a directory that others may use too."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from jobs.backends.checkpoint_store import CheckpointStore, size_of


@pytest.fixture
def stored(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "volume")


def keep(stored: CheckpointStore, name: str, *sizes: int) -> Path:
    folder = stored.of(name) / "1"
    folder.mkdir(parents=True)
    for number, size in enumerate(sizes):
        (folder / f"shard-{number}").write_bytes(b"x" * size)
    return folder


def test_a_volume_that_is_not_there_holds_nothing(stored: CheckpointStore) -> None:
    assert stored.sizes() == {}
    stored.forget(str(uuid4()))


def test_jobs_are_counted_with_all_their_attempts_and_forgotten_one_by_one(stored: CheckpointStore) -> None:
    one, other = str(uuid4()), str(uuid4())
    keep(stored, one, 10, 20)
    keep(stored, other)
    assert stored.sizes() == {one: 30, other: 0}
    stored.forget(one)
    assert stored.sizes() == {other: 0}


@pytest.mark.parametrize(
    "name", ["lost+found", ".snapshot", "0b7e3a52c1f94d6e8a3f5d2c9b1e7f40", "0B7E3A52-C1F9-4D6E-8A3F-5D2C9B1E7F40x"]
)
def test_what_is_not_called_as_a_job_is_nobody_s(stored: CheckpointStore, name: str) -> None:
    keep(stored, name, 10)
    assert stored.sizes() == {}


def test_a_link_leads_nowhere(stored: CheckpointStore, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").write_text("stays")
    folder = keep(stored, job := str(uuid4()), 5)
    (folder / "link").symlink_to(tmp_path / "elsewhere")
    stored.of(str(uuid4())).symlink_to(tmp_path / "elsewhere")
    assert stored.sizes() == {job: 5}
    stored.forget(job)
    assert (tmp_path / "elsewhere" / "file").exists()


def test_a_directory_that_cannot_be_listed_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one that is removed meanwhile."""
    for name in ("kept", "removed"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(b"12345")
    scandir = os.scandir

    def vanishing(place: Any) -> Any:
        if str(place).endswith("removed"):
            raise FileNotFoundError(place)
        return scandir(place)

    monkeypatch.setattr(os, "scandir", vanishing)
    assert size_of(tmp_path) == 5
