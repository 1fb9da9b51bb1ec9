"""An optional column."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0901_note")]
    operations = [
        migrations.AddField("job", "hours", models.FloatField(null=True)),
    ]
