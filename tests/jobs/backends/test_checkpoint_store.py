"""What jobs keep for their next attempt, in a directory that others may see too."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from jobs.backends.checkpoint_store import CheckpointStore


@pytest.fixture
def kept(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "volume")


def keep(kept: CheckpointStore, name: str, *sizes: int) -> Path:
    folder = kept.of(name) / "1"
    folder.mkdir(parents=True)
    for number, size in enumerate(sizes):
        (folder / f"shard-{number}").write_bytes(b"x" * size)
    return folder


def test_a_volume_that_is_not_there_holds_nothing(kept: CheckpointStore) -> None:
    assert kept.sizes() == {}
    kept.forget(str(uuid4()))


def test_jobs_are_counted_with_all_their_attempts_and_forgotten_one_by_one(kept: CheckpointStore) -> None:
    one, other = str(uuid4()), str(uuid4())
    keep(kept, one, 10, 20)
    keep(kept, other)
    assert kept.sizes() == {one: 30, other: 0}
    kept.forget(one)
    assert kept.sizes() == {other: 0}


@pytest.mark.parametrize(
    "name", ["lost+found", ".snapshot", "0b7e3a52c1f94d6e8a3f5d2c9b1e7f40", "0B7E3A52-C1F9-4D6E-8A3F-5D2C9B1E7F40x"]
)
def test_what_is_not_called_as_a_job_is_nobody_s(kept: CheckpointStore, name: str) -> None:
    keep(kept, name, 10)
    assert kept.sizes() == {}


def test_a_link_leads_nowhere(kept: CheckpointStore, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").write_text("stays")
    folder = keep(kept, job := str(uuid4()), 5)
    (folder / "link").symlink_to(tmp_path / "elsewhere")
    kept.of(str(uuid4())).symlink_to(tmp_path / "elsewhere")
    assert kept.sizes() == {job: 5}
    kept.forget(job)
    assert (tmp_path / "elsewhere" / "file").exists()
