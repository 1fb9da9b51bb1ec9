"""A step of migrations."""

from __future__ import annotations

from typing import Any

from django.db import migrations


def _check(apps: Any, schema_editor: Any) -> None:
    schema_editor.connection.check_constraints()


def check_rows() -> migrations.RunPython:
    """Run the deferred checks of the rows that the steps before have changed.

    PostgreSQL does not change a table of which changed rows have checks left. With this step between them, changes of
    rows and of tables stay in one transaction: a migration that is cut off leaves nothing and can be run again.
    """
    return migrations.RunPython(_check, _check)
