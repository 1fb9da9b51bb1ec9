"""The Django apps on PostgreSQL: tests of the embedded database run there again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
# Tests that depend most on locks, JSON, raw SQL and ordering.
AGAIN = (
    "tests/rbac/audit/test_log.py",
    "tests/rbac/sign_in/test_second_factor.py",
    "tests/quota/test_ledger.py",
    "tests/quota/test_crowd.py",
    "tests/jobs/services/test_jobs.py",
    "tests/jobs/test_storage_usage.py",
    "tests/jobs/streams/test_store.py",
    "tests/portal/common/test_pagination.py",
)
LOCKS = ("accounts", "datasets", "jobs", "quotas")
OLDER = "tests/portal/database/test_older_database.py"


@pytest.mark.invariant("The Django apps behave on PostgreSQL as on SQLite.")
@pytest.mark.postgres
@pytest.mark.timeout(400)
def test_tests_of_the_embedded_database_pass_on_postgresql(postgres: str, tmp_path: Path) -> None:
    run_on(postgres, tmp_path, *AGAIN)


@pytest.mark.postgres
@pytest.mark.timeout(400)
def test_a_database_of_an_earlier_version_is_brought_up_to_date(postgres: str, tmp_path: Path) -> None:
    run_on(postgres, tmp_path, OLDER)


@pytest.mark.postgres
@pytest.mark.timeout(400)
@pytest.mark.parametrize("file", LOCKS)
def test_of_two_concurrent_transactions_the_second_waits_for_the_first(
    file: str, postgres: str, tmp_path: Path
) -> None:
    run_on(postgres, tmp_path, f"tests/portal/locks_on_postgres/{file}.py")


def run_on(database: str, data: Path, *tests: str) -> None:
    environment = {**os.environ, "REGATTA_DATABASE_URL": database, "REGATTA_DATA_DIR": str(data)}
    environment.pop("PYTEST_XDIST_WORKER", None)
    left_out = "not (postgres or browser or processes or etcd)"
    command = [sys.executable, "-m", "pytest", "-m", left_out, "-p", "no:cacheprovider", *tests]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=380)
    assert done.returncode == 0, done.stdout[-6000:]
