"""The check of rows that were written before it."""

from django.db import migrations

from portal.common.migrating import ValidateCheck


class Migration(migrations.Migration):
    dependencies = [("jobs", "0906_fill")]
    operations = [
        ValidateCheck("job", "attempts_begin_with_one"),
    ]
