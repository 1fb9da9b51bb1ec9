"""Shares name their namespace: a foreign key exists only for namespaces that exist, and that showed which do."""

from __future__ import annotations

from typing import Any

from django.db import migrations, models


def copy_names(apps: Any, schema_editor: Any) -> None:
    shares = apps.get_model("datasets", "Share").objects
    for pk, name in shares.values_list("pk", "namespace__name"):
        shares.filter(pk=pk).update(name=name)


class Migration(migrations.Migration):
    # By itself: PostgreSQL does not change a table while changes of its rows have deferred checks pending.
    atomic = False
    dependencies = [("datasets", "0003_parts_by_any_checksum")]

    operations = [
        migrations.AddField("share", "name", models.CharField(default="", max_length=63), preserve_default=False),
        migrations.RunPython(copy_names, migrations.RunPython.noop),
        migrations.RemoveConstraint("share", "one_share_per_namespace"),
        migrations.RemoveField("share", "namespace"),
        migrations.AddConstraint(
            "share", models.UniqueConstraint(fields=("dataset", "name"), name="one_share_per_name")
        ),
    ]
