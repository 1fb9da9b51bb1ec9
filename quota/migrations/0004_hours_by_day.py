"""Sums of hours by day, with what stretches have used so far."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, timedelta
from typing import Any

import django.db.models.deletion
from django.db import migrations, models

HOURS_OF = {"cpu_hours": "cpu", "gpu_hours": "gpu"}


def sum_up(apps: Any, schema_editor: Any) -> None:
    sums: defaultdict[Any, dict[str, float]] = defaultdict(lambda: dict.fromkeys(HOURS_OF, 0.0))
    ended = apps.get_model("quota", "Stretch").objects.filter(ended__isnull=False)
    rows = ended.values_list("reservation__namespace_id", "amounts", "begun", "ended")
    for namespace, amounts, begun, end in rows.iterator():
        start = begun.astimezone(UTC)
        while start < end:
            midnight = start.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
            until = min(midnight, end)
            for name, of in HOURS_OF.items():
                sums[namespace, start.date()][name] += amounts.get(of, 0) * (until - start).total_seconds() / 3600
            start = midnight
    model = apps.get_model("quota", "DailyUse")
    days = (model(namespace_id=namespace, day=day, **used) for (namespace, day), used in sums.items())
    model.objects.bulk_create(days, batch_size=1000)


class Migration(migrations.Migration):
    dependencies = [("quota", "0003_storage"), ("rbac", "0001_initial")]
    operations = [
        migrations.CreateModel(
            name="DailyUse",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("day", models.DateField()),
                ("cpu_hours", models.FloatField(default=0)),
                ("gpu_hours", models.FloatField(default=0)),
                (
                    "namespace",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="rbac.namespace"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=["namespace", "day"], name="one_sum_of_hours_per_day")
                ]
            },
        ),
        migrations.RunPython(sum_up, migrations.RunPython.noop, elidable=True),
    ]
