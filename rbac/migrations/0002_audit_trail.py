"""The audit trail: outcome, before and after, reason, request; append-only from here on."""

from __future__ import annotations

from typing import Any

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


def keep_the_names(apps: Any, schema_editor: Any) -> None:
    entries = apps.get_model("rbac", "AuditEntry").objects.exclude(room=None)
    for pk, name in entries.values_list("pk", "room__name"):
        entries.filter(pk=pk).update(namespace=name)


class Migration(migrations.Migration):
    dependencies = [("rbac", "0001_initial")]

    operations = [
        migrations.RenameField("auditentry", "namespace", "room"),
        migrations.AddField("auditentry", "namespace", models.CharField(blank=True, default="", max_length=63)),
        migrations.RunPython(keep_the_names, migrations.RunPython.noop),
        migrations.RemoveField("auditentry", "room"),
        migrations.AlterField(
            "auditentry", "namespace", models.CharField(blank=True, db_index=True, max_length=63)
        ),
        migrations.AlterField("auditentry", "action", models.CharField(db_index=True, max_length=64)),
        migrations.AddField("auditentry", "before", models.JSONField(blank=True, null=True)),
        migrations.AddField("auditentry", "after", models.JSONField(blank=True, null=True)),
        migrations.AddField(
            "auditentry",
            "outcome",
            models.CharField(choices=[("done", "Done"), ("refused", "Refused")], default="done", max_length=16),
        ),
        migrations.AddField(
            "auditentry", "reason", models.CharField(blank=True, default="", max_length=500), preserve_default=False
        ),
        migrations.AddField(
            "auditentry", "request_id", models.CharField(blank=True, default="", max_length=64), preserve_default=False
        ),
        migrations.AddField(
            "auditentry",
            "impersonator",
            models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
    ]
