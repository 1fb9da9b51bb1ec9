"""Migrations that find a lock in the way are tried again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, connection

from portal.operations import migrating
from portal.operations.migrating import LIMIT_SECONDS, StillLocked, migrate


class LockedDatabase:
    """``migrate`` finds a lock in the way for the first tries."""

    def __init__(self, tries: int, error: type[psycopg.Error] = psycopg.errors.LockNotAvailable) -> None:
        self.left, self._error = tries, error

    def __call__(self, *_: Any, **__: Any) -> None:
        if self.left:
            self.left -= 1
            raise OperationalError from self._error()


@pytest.fixture
def locked(monkeypatch: pytest.MonkeyPatch) -> Callable[[LockedDatabase], LockedDatabase]:
    """Have ``migrate`` meet this database, with a migration to run."""
    monkeypatch.setattr("django.db.migrations.executor.MigrationExecutor.migration_plan", lambda *_: ["one"])
    monkeypatch.setattr(migrating, "_oldest_transaction", lambda: "The oldest is 4711.")

    def meet(database: LockedDatabase) -> LockedDatabase:
        monkeypatch.setattr(migrating, "call_command", database)
        return database

    return meet


@pytest.mark.django_db
def test_a_lock_in_the_way_is_named_and_the_migration_tried_again(locked: Any) -> None:
    database, lines, pauses = locked(LockedDatabase(3)), [], []
    migrate(lines.append, pauses.append)
    assert (database.left, pauses) == (0, [1.0, 2.0, 4.0])
    assert lines[0] == "The migration waits for a lock. The oldest is 4711. The next try is in 1 s."


@pytest.mark.django_db
def test_a_deadlock_is_tried_again(locked: Any) -> None:
    database = locked(LockedDatabase(1, psycopg.errors.DeadlockDetected))
    migrate(str, lambda _: None)
    assert database.left == 0


@pytest.mark.django_db
def test_a_lock_that_stays_ends_it_with_its_owner(locked: Any) -> None:
    locked(LockedDatabase(10_000))
    pauses: list[float] = []
    with pytest.raises(StillLocked, match=r"4711\. End it"):
        migrate(str, pauses.append)
    assert LIMIT_SECONDS - max(pauses) < sum(pauses) <= LIMIT_SECONDS


@pytest.mark.django_db
def test_another_error_is_raised_at_once(locked: Any) -> None:
    locked(LockedDatabase(1, psycopg.errors.DiskFull))
    with pytest.raises(OperationalError):
        migrate(str, pytest.fail)


@pytest.mark.django_db
def test_a_database_that_is_up_to_date_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrating, "call_command", pytest.fail)
    migrate(pytest.fail, pytest.fail)
    assert connection.is_usable()
