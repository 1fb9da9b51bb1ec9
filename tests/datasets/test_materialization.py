"""Layout of sealed versions for the processes of a job."""

from __future__ import annotations

import fcntl
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import IO

import pytest

from datasets import garbage_collection, materialization, services
from datasets.models import Version
from datasets.storage import default_storage
from datasets.storage.base import StorageError
from datasets.storage.local import LocalStorage
from portal.common.clock import now
from runtime.data import catalogue
from tests.datasets.filled import ROWS, seal
from tests.personas import Personas

pytestmark = pytest.mark.django_db
LATER = timedelta(days=2)


@pytest.fixture
def version(personas: Personas) -> Version:
    return seal(personas.developer)


def test_a_trainer_finds_it_by_name_and_reads_every_record(version: Version) -> None:
    assert materialization.prepare(version)
    info = catalogue.find("team/mine", [materialization.root_of(version.pk)])
    assert info.name == "team/mine@1"
    rows = [row for chunk in catalogue.chunks(info) for row in catalogue.read_chunk(chunk)]
    assert rows == [{"x": "1", "y": "2"}, {"x": "3", "y": "4"}]


def test_its_bytes_are_not_stored_twice(version: Version) -> None:
    materialization.prepare(version)
    (laid_out,) = materialization.root_of(version.pk).rglob("train.csv")
    assert laid_out.stat().st_nlink == 2


def test_its_root_contains_nothing_of_others(personas: Personas, version: Version) -> None:
    other = seal(personas.stranger, "elsewhere", "theirs", {"a.csv": b"x\n9\n"})
    materialization.prepare(version)
    materialization.prepare(other)
    found = {path.name for path in materialization.root_of(version.pk).rglob("*") if path.is_file()}
    assert found == {"manifest.json", "version.json", *ROWS}


def test_the_layout_of_a_dead_process_is_finished_by_another(version: Version, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, placed = LocalStorage.place, []

    def place(self: LocalStorage, key: str, path: Path) -> None:
        placed.append(path.name)
        if len(placed) == 2:
            raise StorageError("The storage is away.")
        whole(self, key, path)

    monkeypatch.setattr(LocalStorage, "place", place)
    with pytest.raises(StorageError):
        materialization.prepare(version)
    assert not materialization.root_of(version.pk).exists()
    assert materialization.prepare(version) and len(placed) == 3


def test_a_lock_that_was_removed_while_it_was_waited_for_keeps_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, flock, locked = tmp_path / "making-1.lock", fcntl.flock, []

    def overtaken(file: IO[str], how: int) -> None:
        """Another process ends, and a third one begins, between opening and locking."""
        if not locked:
            locked.append(file)
            lock.unlink()
            third = tmp_path / "third"
            third.touch()
            third.replace(lock)
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", overtaken)
    with materialization._alone(lock) as alone:
        assert not alone
    with materialization._alone(lock) as alone:
        assert alone


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Storage that lays out nothing until it is released."""
    go_on, whole = threading.Event(), LocalStorage.place

    def place(self: LocalStorage, key: str, path: Path) -> None:
        assert go_on.wait(60)
        whole(self, key, path)

    monkeypatch.setattr(LocalStorage, "place", place)
    yield go_on
    go_on.set()


def test_a_caller_does_not_wait_long_for_a_slow_layout(version: Version, slow: threading.Event) -> None:
    assert not materialization.prepare(version, patience=0.01)
    slow.set()
    assert materialization.prepare(version, patience=60)


def test_it_is_laid_out_once_for_many_callers(version: Version, slow: threading.Event) -> None:
    folder = default_storage().shelf()
    assert not materialization.prepare(version, patience=0.01)
    # Simulates another process, which does not know the thread and meets the lock.
    other = materialization._layout(version, materialization.root_of(version.pk))
    other.make()
    assert not materialization.root_of(version.pk).exists()
    slow.set()
    assert materialization.prepare(version, patience=60)
    assert [path.name for path in folder.iterdir()] == [f"version-{version.pk}"]


def test_a_layout_that_was_not_requested_lately_is_removed_unless_it_is_needed(version: Version) -> None:
    assert materialization.prepare(version)
    assert materialization.clear(now(), ()) == 0
    assert materialization.clear(now() + LATER, {version.pk}) == 0
    assert materialization.clear(now() + LATER, ()) == 1
    assert not materialization.root_of(version.pk).exists() and materialization.prepare(version)


def test_a_version_that_is_needed_outlives_its_grace(version: Version, settings) -> None:  # type: ignore[no-untyped-def]
    services.delete_dataset(actor=version.created_by, ns="team", name="mine")
    services_gone = now() + timedelta(days=settings.KEEP_DELETED_DATASETS_DAYS + 1)
    garbage_collection.tidy(services_gone, {version.pk})
    assert materialization.prepare(version)
    garbage_collection.tidy(services_gone)
    assert not Version.objects.exists()


def test_without_a_free_thread_it_is_laid_out_at_the_next_request(
    version: Version, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as shortage:
        shortage.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(OSError, match="can't start new thread"):
            materialization.prepare(version)
    assert materialization.prepare(version, patience=30)
