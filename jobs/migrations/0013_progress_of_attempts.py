from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0012_terminal_recordings")]
    operations = [
        # Nullable, so that the previous release can insert rows during an upgrade.
        migrations.AddField("attempt", "progress", models.JSONField(blank=True, null=True)),
    ]
