"""An installation of the last release on a real PostgreSQL: its schema, and rows by the hundred thousand."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import psycopg

from scripts.check_migrations import FILE, read_baseline

ROOT = Path(__file__).resolve().parents[3]
JOBS, RUNNING = 100_000, 200
_SECONDS = 120.0
# Rows of one namespace: the newest jobs run. Job n has the id md5('job n'), its attempt md5('attempt n').
_ROWS = f"""
SET session_replication_role = replica;
INSERT INTO rbac_user (id, password, is_superuser, first_name, last_name, is_active, date_joined, username, skeleton,
    email, awaiting) VALUES (1000, '!', false, '', '', true, now(), 'ada', 'ada', 'ada@example.org', '');
INSERT INTO rbac_namespace (id, name, created) VALUES (1000, 'team', now());
INSERT INTO rbac_membership (namespace_id, user_id, role) VALUES (1000, 1000, 'owner');
INSERT INTO jobs_codesnapshot (digest, size, created) VALUES (repeat('c', 64), 10, now());
INSERT INTO jobs_job (id, namespace_id, owner_id, name, spec, snapshot_id, state, reason, why, attempt, requeues,
    revision, created, changed, started, finished)
    SELECT md5('job ' || n)::uuid, 1000, 1000, 'job-' || n, '{{"name": "digits", "roles": {{}}}}', repeat('c', 64),
    CASE WHEN n > {JOBS - RUNNING} THEN 'RUNNING' ELSE 'SUCCEEDED' END,
    CASE WHEN n > {JOBS - RUNNING} THEN '' ELSE 'completed' END, '', 1, '{{}}', 5,
    now() - ({JOBS} - n) * interval '1 minute', now(), now() - ({JOBS} - n) * interval '1 minute',
    CASE WHEN n > {JOBS - RUNNING} THEN NULL ELSE now() - ({JOBS} - n - 1) * interval '1 minute' END
    FROM generate_series(1, {JOBS}) n;
INSERT INTO jobs_attempt (id, job_id, number, token_digest, created)
    SELECT md5('attempt ' || n)::uuid, md5('job ' || n)::uuid, 1, md5('token ' || n) || md5('t' || n), now()
    FROM generate_series(1, {JOBS}) n;
INSERT INTO jobs_replica (attempt_id, name, role, index, state, why, out_of_memory, start_number, restarts, rehearsed,
    dismissed, flushed)
    SELECT md5('attempt ' || n)::uuid, 'trainer-' || i, 'trainer', i, 'exited', '', false, 1, 0, false, false, true
    FROM generate_series(1, {JOBS}) n, generate_series(0, 1) i;
INSERT INTO jobs_transition (job_id, attempt, at, old, state, reason, why)
    SELECT md5('job ' || n)::uuid, 1, now(), '', 'QUEUED', '', '' FROM generate_series(1, {JOBS}) n;
INSERT INTO jobs_streamhead (job_id, kind, last, closed, sealed, unsealed)
    SELECT md5('job ' || n)::uuid, 'metrics', 2, false, 0, 1 FROM generate_series(1, {JOBS}) n;
INSERT INTO jobs_block (job_id, kind, lo, hi, payload)
    SELECT md5('job ' || n)::uuid, 'metrics', 1, 2, decode(repeat('ab', 40), 'hex') FROM generate_series(1, {JOBS}) n;
SET session_replication_role = origin;
ANALYZE;
"""
_MIGRATE = """
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
executor = MigrationExecutor(connection)
ours = {leaves!r}
others = [leaf for leaf in executor.loader.graph.leaf_nodes() if leaf[0] not in {{*ours, "portal"}}]
executor.migrate([*ours.items(), *others])
"""
# Tables whose rows must be as before; of those that running jobs write, the rows of ended jobs.
_ENDED = "(SELECT id FROM jobs_job WHERE state = 'SUCCEEDED')"
_KEPT: Mapping[str, str] = {
    "jobs_job": "state = 'SUCCEEDED'",
    "jobs_attempt": "true",
    "jobs_replica": "true",
    "jobs_transition": f"job_id IN {_ENDED}",
    "jobs_streamhead": f"job_id IN {_ENDED}",
    "jobs_block": f"job_id IN {_ENDED}",
    "rbac_user": "username = 'ada'",
    "rbac_membership": "user_id = 1000",
}


def environment_of(url: str, data: Path, settings: str = "portal.settings") -> dict[str, str]:
    """Return the environment of the portal's commands on this database."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("REGATTA_", "DJANGO_"))}
    return own | {
        "DJANGO_SETTINGS_MODULE": settings,
        "PYTHONPATH": str(ROOT),
        "REGATTA_ADMIN_PASSWORD": "correct horse battery staple",
        "REGATTA_DATABASE_URL": url,
        "REGATTA_DATA_DIR": str(data),
    }


def start(environment: Mapping[str, str], *arguments: str) -> subprocess.Popen[str]:
    """Start a command of ``manage.py``."""
    return subprocess.Popen(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def succeed(process: subprocess.Popen[str]) -> str:
    """Wait for the end of a command; return its output."""
    output, _ = process.communicate(timeout=_SECONDS)
    assert process.returncode == 0, output
    return output


def run_code(environment: Mapping[str, str], code: str) -> str:
    """Run code in a process of the portal; return its output."""
    return succeed(start(environment, "shell", "--no-imports", "--command", code))


def migrate_to_last_release(environment: Mapping[str, str]) -> None:
    """Make the schema of the last release in an empty database."""
    baseline = read_baseline(FILE.read_text(encoding="utf-8"))
    run_code(environment, _MIGRATE.format(leaves=dict(baseline.leaves)))


def fill(url: str) -> None:
    """Insert the rows."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_ROWS)


def columns_of(url: str) -> dict[str, list[str]]:
    """Return the columns of the tables that are compared."""
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public' "
            "AND table_name = ANY(%s) ORDER BY ordinal_position",
            [list(_KEPT)],
        ).fetchall()
    return {table: [column for name, column in rows if name == table] for table in _KEPT}


def sums_of(url: str, columns: Mapping[str, list[str]]) -> dict[str, tuple[int, int]]:
    """Return the number of rows and a sum of their hashes, by table, in the given columns."""
    sums = {}
    with psycopg.connect(url) as connection:
        for table, rows in _KEPT.items():
            names = ", ".join(f'"{name}"' for name in columns[table])
            row = connection.execute(
                f"SELECT count(*), sum(hashtextextended(ROW({names})::text, 0)) FROM {table} WHERE {rows}"
            ).fetchone()
            assert row is not None
            sums[table] = (int(row[0]), int(row[1]))
    return sums
