"""Shares name their namespace: a foreign key exists only for namespaces that exist, and that showed which do."""

from __future__ import annotations

from typing import Any

from django.db import migrations, models
from django.db.models import OuterRef, Subquery

from portal.common.migrating import check_rows


def copy_names(apps: Any, schema_editor: Any) -> None:
    namespaces = apps.get_model("rbac", "Namespace").objects.filter(pk=OuterRef("namespace"))
    apps.get_model("datasets", "Share").objects.update(name=Subquery(namespaces.values("name")))


class Migration(migrations.Migration):
    dependencies = [("datasets", "0003_parts_by_any_checksum")]

    operations = [
        migrations.AddField("share", "name", models.CharField(default="", max_length=63), preserve_default=False),
        migrations.RunPython(copy_names, migrations.RunPython.noop),
        check_rows(),
        migrations.RemoveConstraint("share", "one_share_per_namespace"),
        migrations.RemoveField("share", "namespace"),
        migrations.AddConstraint(
            "share", models.UniqueConstraint(fields=("dataset", "name"), name="one_share_per_name")
        ),
    ]
