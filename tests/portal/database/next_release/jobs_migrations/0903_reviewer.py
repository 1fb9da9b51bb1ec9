"""A foreign key. Its index is built later."""

from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0902_hours"), migrations.swappable_dependency(settings.AUTH_USER_MODEL)]
    operations = [
        migrations.AddField(
            "job",
            "reviewer",
            models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, db_index=False, related_name="+"),
        ),
    ]
