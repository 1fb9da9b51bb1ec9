from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0010_elastic_decisions")]
    operations = [
        # Nullable, so that the previous release can insert rows during an upgrade.
        migrations.AddField("job", "traceparent", models.CharField(blank=True, max_length=55, null=True)),
    ]
