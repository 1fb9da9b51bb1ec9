"""The database lets rows of the audit log be deleted that are older than a year. By itself: PostgreSQL keeps changes of
rows and tables apart."""

from __future__ import annotations

from typing import Any

from django.db import migrations

from rbac.audit import triggers as audit_triggers


def renew(apps: Any, schema_editor: Any) -> None:
    audit_triggers.lift(schema_editor.connection)
    audit_triggers.guard(schema_editor.connection)


class Migration(migrations.Migration):
    dependencies = [("rbac", "0006_names_sessions_and_email")]
    operations = [migrations.RunPython(renew, migrations.RunPython.noop)]
