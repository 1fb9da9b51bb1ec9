"""Shares name the namespace that had the name: one that is created later under a shared name reads nothing."""

from __future__ import annotations

from typing import Any

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import OuterRef, Subquery


def bind(apps: Any, schema_editor: Any) -> None:
    """To the namespaces that there are now; a share with a name that none has stays void."""
    namespaces = apps.get_model("rbac", "Namespace").objects.filter(name=OuterRef("name"))
    apps.get_model("datasets", "Share").objects.update(namespace=Subquery(namespaces.values("pk")))


class Migration(migrations.Migration):
    dependencies = [("datasets", "0006_file_unread"), ("rbac", "0007_audit_log_retention")]

    operations = [
        migrations.AddField(
            "share",
            "namespace",
            models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="+",
                to="rbac.namespace",
            ),
        ),
        migrations.RunPython(bind, migrations.RunPython.noop),
    ]
