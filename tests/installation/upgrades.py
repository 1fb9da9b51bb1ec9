"""A next release of the portal: the same code with one more migration, under another tag."""

from __future__ import annotations

import yaml

from tests.installation import image_store
from tests.installation.installation import ROOT, SYSTEM, Installation

_TABLE = "table_of_the_next_release"
_FILE = "portal/migrations/9000_next_release.py"
_MIGRATION = """\
from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("portal", "{last}")]
    operations = [migrations.RunSQL("CREATE TABLE {table} (id integer)", "DROP TABLE {table}")]
"""


def to(installation: Installation, release: str) -> None:
    """Make images of the next release and follow section Upgrade: new tag, render, apply."""
    tag = installation.tag_of(release)
    last = max(path.stem for path in (ROOT / "portal" / "migrations").glob("[0-9]*.py"))
    installation.write(_FILE, _MIGRATION.format(last=last, table=_TABLE))
    for name in ("portal", "controller"):
        old, new = (f"{installation.registry}/regatta/{name}:{each}" for each in (installation.tag, tag))
        with image_store.container(old, "--pull-never") as container:
            if name == "portal":
                folder = "/regatta/portal/migrations/"
                image_store.do("add", "--quiet", container, str(installation.folder / _FILE), folder)
            image_store.do("commit", "--quiet", container, new)
        installation.push(new, new)
    installation.tag = tag
    installation.write("values.yaml", yaml.safe_dump(installation.values()))
    installation.render_and_apply()


def migrated(installation: Installation) -> bool:
    """Return whether the database has the table of the next release."""
    query = f"select count(*) from information_schema.tables where table_name = '{_TABLE}'"
    command = (
        "exec",
        "postgresql-0",
        "--",
        "psql",
        "--username=regatta",
        "--tuples-only",
        "--command",
        query,
        "regatta",
    )
    return installation.kubectl("-n", SYSTEM, *command).strip() == "1"
