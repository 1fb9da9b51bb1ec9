"""The database refuses to change the audit trail. By itself: PostgreSQL keeps changes of rows and tables apart."""

from __future__ import annotations

from typing import Any

from django.db import migrations

from rbac.audit import triggers as audit_triggers


def guard(apps: Any, schema_editor: Any) -> None:
    audit_triggers.guard(schema_editor.connection)


def lift(apps: Any, schema_editor: Any) -> None:
    audit_triggers.lift(schema_editor.connection)


class Migration(migrations.Migration):
    dependencies = [("rbac", "0002_audit_trail")]
    operations = [migrations.RunPython(guard, lift)]
