from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0016_held_replicas")]
    operations = [
        # Nullable, so that the previous release can insert rows during an upgrade.
        migrations.AddField("attempt", "pause", models.JSONField(blank=True, null=True)),
    ]
