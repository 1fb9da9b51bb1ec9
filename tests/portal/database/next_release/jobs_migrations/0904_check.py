"""A check of rows that are written from now on."""

from django.db import migrations, models

from portal.common.migrating import AddCheckNotValid


class Migration(migrations.Migration):
    dependencies = [("jobs", "0903_reviewer")]
    operations = [
        AddCheckNotValid(
            "job", models.CheckConstraint(condition=models.Q(attempt__gte=1), name="attempts_begin_with_one")
        ),
    ]
