"""Operations for migrations while the portal runs: none holds a lock that stops readers or writers for longer
than an instant, however many rows a table has.

On the embedded database each is the ordinary operation: nothing else runs during its migrations. A migration with
``AddIndexConcurrently``, ``AddUniqueConcurrently`` or ``InBatches`` has ``atomic = False`` and can be run again after
an interruption.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.contrib.postgres import operations as postgres
from django.db import migrations, models, transaction
from django.db.models import QuerySet

BATCH = 1000


def _check(apps: Any, schema_editor: Any) -> None:
    schema_editor.connection.check_constraints()


def check_rows() -> migrations.RunPython:
    """Return an operation that runs the deferred checks of rows that earlier operations have changed.

    PostgreSQL does not alter a table while changed rows of it have pending checks. With this operation in between,
    changes of rows and of tables stay in one transaction: an interrupted migration leaves nothing and can be run again.
    """
    return migrations.RunPython(_check, _check)


class AddIndexConcurrently(postgres.AddIndexConcurrently):
    """Build an index while rows are read and written."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if schema_editor.connection.vendor != "postgresql":
            migrations.AddIndex.database_forwards(self, app_label, schema_editor, from_state, to_state)
            return
        with _patient(schema_editor):
            _drop_rest(schema_editor, self.index.name)
            super().database_forwards(app_label, schema_editor, from_state, to_state)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if schema_editor.connection.vendor != "postgresql":
            migrations.AddIndex.database_backwards(self, app_label, schema_editor, from_state, to_state)
            return
        with _patient(schema_editor):
            super().database_backwards(app_label, schema_editor, from_state, to_state)


class AddUniqueConcurrently(migrations.AddConstraint):
    """Add a constraint of unique fields: its index is built while rows are read and written. Raises TypeError for one
    with a condition or with expressions."""

    atomic = False

    def __init__(self, model_name: str, constraint: models.UniqueConstraint) -> None:
        if not constraint.fields or constraint.condition is not None:
            raise TypeError("AddUniqueConcurrently takes a UniqueConstraint of fields, without a condition.")
        super().__init__(model_name, constraint)
        self._fields = tuple(constraint.fields)

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if schema_editor.connection.vendor != "postgresql":
            super().database_forwards(app_label, schema_editor, from_state, to_state)
            return
        model = to_state.apps.get_model(app_label, self.model_name)
        quote = schema_editor.quote_name
        table, name = quote(model._meta.db_table), quote(self.constraint.name)
        columns = ", ".join(quote(model._meta.get_field(field).column) for field in self._fields)
        with _patient(schema_editor):
            _drop_rest(schema_editor, self.constraint.name)
            schema_editor.execute(f"CREATE UNIQUE INDEX CONCURRENTLY {name} ON {table} ({columns})")
        schema_editor.execute(f"ALTER TABLE {table} ADD CONSTRAINT {name} UNIQUE USING INDEX {name}")


class AddCheckNotValid(postgres.AddConstraintNotValid):
    """Add a check for rows that are written from now on. ``ValidateCheck`` of a later migration reads the others."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if schema_editor.connection.vendor == "postgresql":
            super().database_forwards(app_label, schema_editor, from_state, to_state)
        else:
            migrations.AddConstraint.database_forwards(self, app_label, schema_editor, from_state, to_state)


class ValidateCheck(postgres.ValidateConstraint):
    """Check all rows while they are read and written. The only operation of its migration."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if schema_editor.connection.vendor == "postgresql":
            super().database_forwards(app_label, schema_editor, from_state, to_state)


class InBatches(migrations.RunPython):
    """Call ``change`` with ``size`` rows of a model at a time, each time in a transaction of its own.

    ``change`` gets a QuerySet of the migration's model and can be called again with the same rows: an interrupted
    migration begins again. Rows that are added during it are changed too, as far as their keys are above those so far;
    the running release must write the others correctly.
    """

    atomic = False

    def __init__(self, app_label: str, model_name: str, change: Callable[[QuerySet[Any]], object], size: int = BATCH):
        def run(apps: Any, schema_editor: Any) -> None:
            objects = apps.get_model(app_label, model_name)._base_manager.using(schema_editor.connection.alias)
            for keys in _batches(objects, size):
                with transaction.atomic(using=schema_editor.connection.alias):
                    change(objects.filter(pk__in=keys))

        super().__init__(run, migrations.RunPython.noop, atomic=False, elidable=True)


def _batches(objects: Any, size: int) -> Iterator[list[Any]]:
    """Yield the primary keys of all rows in order."""
    keys = list(objects.order_by("pk").values_list("pk", flat=True)[:size])
    while keys:
        yield keys
        keys = list(objects.filter(pk__gt=keys[-1]).order_by("pk").values_list("pk", flat=True)[:size])


@contextmanager
def _patient(schema_editor: Any) -> Iterator[None]:
    """Wait for a lock without limit inside the block: building an index waits for all transactions that began before,
    and blocks nobody."""
    if schema_editor.collect_sql:
        yield
        return
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SHOW lock_timeout")
        (before,) = cursor.fetchone()
        cursor.execute("SET lock_timeout = 0")
        try:
            yield
        finally:
            cursor.execute("SELECT set_config('lock_timeout', %s, false)", [before])


def _drop_rest(schema_editor: Any, name: str) -> None:
    """Drop the unusable index that an interrupted build has left."""
    schema_editor.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {schema_editor.quote_name(name)}")
