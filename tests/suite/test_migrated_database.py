"""A test database is a copy of one that was migrated by the migrations as they are now."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from threading import Barrier, Thread

import pytest
from django.db import connection

from rbac.audit import triggers
from rbac.migrations import __file__ as package_of_migrations
from tests import migrated_database
from tests.migrated_database import fingerprint, provide_file, sources

MIGRATION = Path(package_of_migrations).with_name("0001_initial.py")


class Maker:
    """Makes a database with one table, and counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, name: str) -> None:
        self.calls += 1
        with sqlite3.connect(name) as database:
            database.execute("CREATE TABLE made (number)")
            database.execute("INSERT INTO made VALUES (?)", [self.calls])
        database.close()


def number(path: Path) -> int:
    with sqlite3.connect(path) as database:
        (found,) = database.execute("SELECT number FROM made").fetchone()
    database.close()
    return int(found)


def test_the_sources_are_all_migrations_and_the_modules_that_they_import() -> None:
    found = sources()
    assert MIGRATION in found
    assert Path(triggers.__file__) in found
    assert any(path.parts[-4:-1] == ("contrib", "contenttypes", "migrations") for path in found)
    assert {path.name for path in MIGRATION.parent.glob("*.py")} == {
        path.name for path in found if path.parent == MIGRATION.parent
    }


def test_a_changed_migration_has_another_fingerprint(tmp_path: Path) -> None:
    copy = Path(shutil.copy(MIGRATION, tmp_path))
    before = fingerprint([copy])
    assert fingerprint([copy]) == before
    copy.write_text(copy.read_text().replace("max_length=", "max_length=1"))
    assert fingerprint([copy]) != before


def test_an_added_a_removed_and_a_renamed_migration_have_other_fingerprints(tmp_path: Path) -> None:
    first, second = (tmp_path / name for name in ("0001_a.py", "0002_b.py"))
    for path in (first, second):
        path.touch()
    found = {fingerprint([first]), fingerprint([first, second]), fingerprint([second]), fingerprint([])}
    assert len(found) == 4


def test_a_database_is_made_once_and_copied_each_time(tmp_path: Path) -> None:
    make = Maker()
    for name in ("one", "other"):
        provide_file(tmp_path / "kept", "key", tmp_path / name, make)
    assert (make.calls, number(tmp_path / "one"), number(tmp_path / "other")) == (1, 1, 1)


def test_another_fingerprint_makes_another_database_and_removes_the_former(tmp_path: Path) -> None:
    make = Maker()
    for key in ("before", "after"):
        provide_file(tmp_path / "kept", key, tmp_path / "test", make)
    assert (make.calls, number(tmp_path / "test")) == (2, 2)
    assert [path.name for path in (tmp_path / "kept").glob("*.sqlite3")] == ["after.sqlite3"]


def test_a_database_whose_making_failed_is_not_kept(tmp_path: Path) -> None:
    def fail(name: str) -> None:
        Path(name).touch()
        raise OSError

    with pytest.raises(OSError):
        provide_file(tmp_path / "kept", "key", tmp_path / "test", fail)
    provide_file(tmp_path / "kept", "key", tmp_path / "test", make := Maker())
    assert (make.calls, number(tmp_path / "test")) == (1, 1)


def test_of_several_workers_one_makes_the_database(tmp_path: Path) -> None:
    make, together = Maker(), Barrier(4)

    def work(name: str) -> None:
        together.wait()
        provide_file(tmp_path / "kept", "key", tmp_path / name, make)

    workers = [Thread(target=work, args=(str(index),)) for index in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert (make.calls, [number(tmp_path / str(index)) for index in range(4)]) == (1, [1, 1, 1, 1])


def test_the_log_of_an_interrupted_run_is_removed_with_its_database(tmp_path: Path) -> None:
    left = tmp_path / "test"
    for suffix in ("", "-wal", "-shm"):
        left.with_name(left.name + suffix).write_bytes(b"left")
    provide_file(tmp_path / "kept", "key", left, Maker())
    assert number(left) == 1


@pytest.mark.django_db
def test_a_changed_migration_is_noticed_by_the_next_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if connection.vendor != "sqlite":
        pytest.skip("files are kept for SQLite alone")
    made: list[str] = []
    monkeypatch.setattr(migrated_database, "DIRECTORY", tmp_path / "kept")
    monkeypatch.setattr(migrated_database, "_migrate", lambda name: (made.append(name), Path(name).touch()))
    monkeypatch.setitem(connection.settings_dict["TEST"], "NAME", str(tmp_path / "test"))
    changed = Path(shutil.copy(MIGRATION, tmp_path))
    monkeypatch.setattr(migrated_database, "sources", lambda: [changed])
    migrated_database.provide()
    migrated_database.provide()
    assert len(made) == 1
    changed.write_text(changed.read_text() + "\n# changed\n")
    migrated_database.provide()
    assert len(made) == 2


def test_a_portal_gets_a_migrated_file_that_only_its_owner_can_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrated_database, "DIRECTORY", tmp_path / "kept")
    monkeypatch.setattr(migrated_database, "_migrate_in_process", Maker())
    migrated_database.provide_for_portal(tmp_path / "regatta.sqlite3")
    assert number(tmp_path / "regatta.sqlite3") == 1
    assert (tmp_path / "regatta.sqlite3").stat().st_mode & 0o777 == 0o600
