"""An operation for migrations."""

from __future__ import annotations

from typing import Any

from django.db import migrations


def _check(apps: Any, schema_editor: Any) -> None:
    schema_editor.connection.check_constraints()


def check_rows() -> migrations.RunPython:
    """Return an operation that runs the deferred checks of rows that earlier operations have changed.

    PostgreSQL does not alter a table while changed rows of it have pending checks. With this operation in between,
    changes of rows and of tables stay in one transaction: an interrupted migration leaves nothing and can be run again.
    """
    return migrations.RunPython(_check, _check)
