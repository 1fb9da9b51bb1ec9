from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0015_notebook_sessions")]
    operations = [
        # Nullable, so that the previous release can insert rows during an upgrade.
        migrations.AddField("replica", "held", models.JSONField(blank=True, null=True)),
    ]
