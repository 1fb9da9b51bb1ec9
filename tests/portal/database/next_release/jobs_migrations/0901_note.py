"""A required column. Each migration alters one table once: its lock is released at the end of the migration."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0010_elastic_decisions")]
    operations = [
        migrations.AddField("job", "note", models.TextField(db_default="")),
    ]
