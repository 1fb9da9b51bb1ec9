"""The database lets rows of the audit log be deleted that are older than a year. By itself: PostgreSQL keeps changes of
rows and tables apart."""

from __future__ import annotations

from typing import Any

from django.db import migrations

from rbac import append_only


def renew(apps: Any, schema_editor: Any) -> None:
    append_only.lift(schema_editor.connection)
    append_only.guard(schema_editor.connection)


class Migration(migrations.Migration):
    dependencies = [("rbac", "0006_names_sessions_and_email")]
    operations = [migrations.RunPython(renew, migrations.RunPython.noop)]
