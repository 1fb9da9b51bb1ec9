"""A required column. Each migration alters one table once: its lock is released at the end of the migration."""

from pathlib import Path

from django.db import migrations, models

# The newest migration of this release.
_LAST = max(path.stem for path in (Path(__file__).parents[5] / "jobs" / "migrations").glob("0*.py"))


class Migration(migrations.Migration):
    dependencies = [("jobs", _LAST)]
    operations = [
        migrations.AddField("job", "note", models.TextField(db_default="")),
    ]
