"""The operations of migrations on the embedded database, and changes of rows in batches.

``tests/portal/database/test_upgrade.py`` runs them on PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from django.apps import apps
from django.db import IntegrityError, connection, migrations, models
from django.db.migrations.state import ProjectState
from django.db.utils import ConnectionHandler
from pytest_django import DjangoDbBlocker

from portal.common.migrating import (
    AddCheckNotValid,
    AddIndexConcurrently,
    AddUniqueConcurrently,
    InBatches,
    ValidateCheck,
)
from rbac.models import User
from tests.factories import make_user

TABLE = migrations.CreateModel("Row", [("id", models.BigAutoField(primary_key=True)), ("n", models.IntegerField())])
CHECK = models.CheckConstraint(condition=models.Q(n__gte=1), name="from_one")


@pytest.fixture
def database(django_db_blocker: DjangoDbBlocker) -> Iterator[Any]:
    made: Any = ConnectionHandler({"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}})["default"]
    with django_db_blocker.unblock():
        yield made
        made.close()


def apply(database: Any, *operations: Any) -> None:
    """Make the table and run the operations."""
    migration = migrations.Migration("0001_test", "test")
    migration.operations, migration.atomic = [TABLE, *operations], False
    with database.schema_editor(atomic=False) as editor:
        migration.apply(ProjectState(), editor)


def insert(database: Any, number: int) -> None:
    with database.cursor() as cursor:
        cursor.execute("INSERT INTO test_row (n) VALUES (%s)", [number])


def test_an_index_is_added(database: Any) -> None:
    apply(database, AddIndexConcurrently("row", models.Index(fields=["n"], name="row_n")))
    with database.cursor() as cursor:
        assert "row_n" in database.introspection.get_constraints(cursor, "test_row")


def test_unique_fields_are_unique(database: Any) -> None:
    apply(database, AddUniqueConcurrently("row", models.UniqueConstraint(fields=["n"], name="one_n")))
    insert(database, 1)
    with pytest.raises(IntegrityError):
        insert(database, 1)


def test_a_check_refuses_new_rows(database: Any) -> None:
    apply(database, AddCheckNotValid("row", CHECK), ValidateCheck("row", CHECK.name))
    insert(database, 1)
    with pytest.raises(IntegrityError):
        insert(database, 0)


@pytest.mark.parametrize(
    "constraint",
    [
        models.UniqueConstraint(fields=["n"], condition=models.Q(n=1), name="some"),
        models.UniqueConstraint(models.F("n"), name="expression"),
    ],
)
def test_a_unique_constraint_that_is_no_index_of_fields_is_refused(constraint: models.UniqueConstraint) -> None:
    with pytest.raises(TypeError, match="AddUniqueConcurrently"):
        AddUniqueConcurrently("row", constraint)


@pytest.mark.django_db
def test_rows_are_changed_in_batches() -> None:
    names = [make_user(f"user-{number}").username for number in range(5)]
    batches: list[list[str]] = []
    operation = InBatches("rbac", "user", lambda rows: batches.append([user.username for user in rows]), size=2)
    operation.code(apps, SimpleNamespace(connection=connection))
    others = User.objects.exclude(username__in=names).count()
    assert sorted(name for batch in batches for name in batch if name in names) == names
    assert max(map(len, batches)) == 2
    assert sum(map(len, batches)) == 5 + others
