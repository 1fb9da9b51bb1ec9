"""The order of the queue as a column, so that the first claims of each namespace are read without all the others."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import migrations, models
from django.db.models import F

from portal.common.migrating import check_rows

HEAD_START_HOURS = {"low": 0, "normal": 1, "high": 4}


def set_turns(apps: Any, schema_editor: Any) -> None:
    claims = apps.get_model("quota", "Claim").objects
    claims.update(turn=F("since"))
    for priority, hours in HEAD_START_HOURS.items():
        claims.filter(priority=priority).update(turn=F("since") - timedelta(hours=hours))


class Migration(migrations.Migration):
    dependencies = [("quota", "0004_hours_by_day")]
    operations = [
        migrations.AddField("Claim", "turn", models.DateTimeField(null=True)),
        migrations.RunPython(set_turns, migrations.RunPython.noop, elidable=True),
        check_rows(),
        migrations.AlterField("Claim", "turn", models.DateTimeField()),
        migrations.AddIndex("Claim", models.Index(fields=["namespace", "turn"], name="quota_claim_namespa_f13f16_idx")),
        migrations.AddIndex(
            "Reservation",
            models.Index(condition=models.Q(released=None), fields=["released"], name="held_reservations"),
        ),
    ]
