"""The point-in-time restore of docs/operations.md on a real PostgreSQL, by the commands of the page."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.servers.postgres_server import PostgresServer
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(300)]
ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "operations.md").read_text()
# Submits a job, notes state and time, and then makes a mistake: the job is deleted, and another one is submitted.
WORK = """
import json
from django.db import connection
from jobs.lifecycle.states import JobState
from jobs.models import Job
from jobs.selectors import specifications
from jobs.services import jobs as services
from tests.personas import make_personas
from tests.portal.database.test_point_in_time import digest

people = make_personas()
def submit(name):
    spec = specifications.parse({"name": name, "files": {"train.py": "print()"}, "dataset": "public/digits"})
    return services.submit_job(actor=people.developer, namespace="team", spec=spec).job
job = submit("kept")
with connection.cursor() as cursor:
    state = digest(cursor)
    cursor.execute("SELECT clock_timestamp()::text, pg_sleep(0.05)")
    time = cursor.fetchone()[0]
services.cancel_job(actor=people.developer, job_id=job.pk)
Job.objects.filter(pk=job.pk).update(state=JobState.CANCELLED)
services.delete_job(actor=people.owner, job_id=job.pk)
submit("of-later")
with connection.cursor() as cursor:
    cursor.execute("SELECT pg_switch_wal()")
    print(json.dumps({"state": state, "time": time, "after": digest(cursor)}))
"""


def digest(cursor: Any) -> dict[str, list[object]]:
    """Return the number of rows of every table, and a digest of them."""
    cursor.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")
    found = {}
    for (table,) in cursor.fetchall():
        whole = "md5(coalesce(string_agg(t::text, '|' ORDER BY t::text), ''))"
        cursor.execute(f"SELECT count(*), {whole} FROM {table} t")
        found[table] = list(cursor.fetchone())
    return found


def block(beginning: str) -> str:
    """Return the lines of the page from the one that begins so to the end of its input."""
    found = re.search(rf"^ *({re.escape(beginning)}.*?)^ *END$", PAGE, re.MULTILINE | re.DOTALL)
    assert found, beginning
    return "".join(line.strip() + "\n" for line in found[1].splitlines())


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    server.start()
    yield server
    server.stop()


def manage(server: PostgresServer, data: Path, *arguments: str) -> str:
    environment: Mapping[str, str] = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("REGATTA_", "DJANGO_"))},
        "DJANGO_SETTINGS_MODULE": "portal.settings",
        "PYTHONPATH": str(ROOT),
        "REGATTA_DATABASE_URL": server.url,
        "REGATTA_DATA_DIR": str(data),
        "REGATTA_ADMIN_PASSWORD": "correct horse battery staple",
    }
    command = [sys.executable, "manage.py", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def execute(server: PostgresServer, statements: str) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        for statement in statements.strip().splitlines():
            connection.execute(sql.SQL(statement))  # type: ignore[arg-type]


def recovered(server: PostgresServer) -> bool:
    with psycopg.connect(server.url) as connection:
        row = connection.execute("SELECT pg_is_in_recovery()").fetchone()
        return row is not None and not row[0]


@pytest.mark.invariant("By the commands of the page, the database is restored to the state of a given time.")
def test_the_database_is_restored_to_the_state_before_a_mistake(server: PostgresServer, tmp_path: Path) -> None:
    archive = server.directory_of_its_own("archive")
    here = {"/archive": str(archive)}
    execute(server, replaced(block("ALTER SYSTEM SET archive_mode"), here))
    server.shut_down("fast")
    server.go_on()
    manage(server, tmp_path, "prepare")
    backup = server.base_backup(re.search(r"pg_basebackup --username=regatta (.*?) > base.tar", PAGE)[1].split())  # type: ignore[index]
    noted = json.loads(manage(server, tmp_path, "shell", "--no-imports", "--command", WORK).splitlines()[-1])
    assert noted["state"] != noted["after"]
    until("the log is in the archive", lambda: archived(server), 30.0)
    server.shut_down("immediate")  # nothing of the last state is needed

    server.replace_data(backup)
    settings = block("restore_command =").replace("2026-11-26 12:00:00+00", noted["time"])
    server.recover(replaced(settings, here))
    until("it has recovered", lambda: recovered(server), 30.0)
    execute(server, block("ALTER SYSTEM RESET restore_command"))
    with psycopg.connect(server.url) as connection:
        assert digest(connection.cursor()) == noted["state"]
    printed = manage(server, tmp_path, "after_restore")
    assert printed.splitlines()[-1] == "The database is ready: start the portal."
    assert "Missing: 0. Unknown: " in manage(server, tmp_path, "check_contents")


def archived(server: PostgresServer) -> bool:
    with psycopg.connect(server.url) as connection:
        row = connection.execute(
            "SELECT last_archived_wal >= pg_walfile_name(pg_switch_wal()) FROM pg_stat_archiver"
        ).fetchone()
        return bool(row and row[0])


def replaced(text: str, names: Mapping[str, str]) -> str:
    for old, new in names.items():
        text = text.replace(old, new)
    return text
