"""Indexes of tables with many rows."""

from django.db import migrations, models

from portal.common.migrating import AddIndexConcurrently, AddUniqueConcurrently


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("jobs", "0904_check")]
    operations = [
        AddIndexConcurrently("job", models.Index(fields=["reviewer"], name="job_reviewer")),
        AddUniqueConcurrently(
            "transition", models.UniqueConstraint(fields=["job", "id"], name="one_transition_per_number")
        ),
    ]
