"""A column that is filled from others."""

from django.db import migrations
from django.db.models import F, QuerySet
from django.db.models.functions import Extract

from portal.common.migrating import InBatches


def count(jobs: QuerySet) -> None:
    jobs.filter(hours=None).update(hours=Extract(F("finished") - F("started"), "epoch") / 3600.0)


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("jobs", "0905_indexes")]
    operations = [
        InBatches("jobs", "job", count),
    ]
