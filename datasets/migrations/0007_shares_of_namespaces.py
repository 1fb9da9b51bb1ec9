"""Shares name the namespace that had the name: one that is created later under a shared name reads nothing."""

from __future__ import annotations

from typing import Any

import django.db.models.deletion
from django.db import migrations, models


def bind(apps: Any, schema_editor: Any) -> None:
    """To the namespaces that there are now."""
    shares, namespaces = apps.get_model("datasets", "Share").objects, apps.get_model("rbac", "Namespace").objects
    for name in set(shares.values_list("name", flat=True)):
        shares.filter(name=name).update(namespace=namespaces.filter(name=name).first())


class Migration(migrations.Migration):
    # By itself: PostgreSQL does not change a table while changes of its rows have deferred checks pending.
    atomic = False
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
