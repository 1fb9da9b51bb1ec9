"""The Django apps on PostgreSQL: tests of the embedded database run there again."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[3]
# Tests that depend most on locks, JSON, raw SQL and ordering.
AGAIN = (
    "tests/rbac/audit/test_log.py",
    "tests/rbac/sign_in/test_second_factor.py",
    "tests/quota/test_ledger.py",
    "tests/quota/test_crowd.py",
    "tests/jobs/services/test_jobs.py",
    "tests/jobs/reconcile/test_cluster_starts.py",
    "tests/jobs/test_storage_usage.py",
    "tests/jobs/streams/test_store.py",
    "tests/portal/common/test_pagination.py",
    "tests/portal/system/test_diagnostics.py",
)
LOCKS = ("accounts", "datasets", "jobs", "quotas")
OLDER = "tests/portal/database/test_older_database.py"
# For all of them: about 80 s on two quiet cores, and several times that on a busy machine.
SECONDS = 1100


@dataclass(frozen=True)
class Run:
    """Output of a run, and how many tests passed and did not, by file."""

    output: str
    passed: Counter[str]
    failed: Counter[str]

    def expect_success_of(self, *files: str) -> None:
        for file in files:
            assert self.passed[file] > 0, f"no test of {file} passed\n{self.output[-6000:]}"
            assert self.failed[file] == 0, self.output[-6000:]


@pytest.fixture(scope="module")
def on_postgres(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run all tests in one process, as its start and the first import of all pages take seconds."""
    data = tmp_path_factory.mktemp("on-postgres")
    address = f"{postgres}?connect_timeout=60"
    environment = {**os.environ, "REGATTA_DATABASE_URL": address, "REGATTA_DATA_DIR": str(data)}
    environment.pop("PYTEST_XDIST_WORKER", None)
    report = data / "report.xml"
    options = ["-m", "not (postgres or browser or processes or etcd)", "-p", "no:cacheprovider"]
    # On a busy machine the migrations alone, which count as a part of the first test, take minutes.
    options += [f"--timeout={SECONDS // 2}"]
    options += [f"--junit-xml={report}", "-o", "junit_family=xunit1", "--tb=short"]
    command = [sys.executable, "-m", "pytest", *options, *AGAIN, *map(path_of_locks, LOCKS), OLDER]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS)
    cases = list(ElementTree.parse(report).iter("testcase")) if report.exists() else []
    bad = [case for case in cases if any(part.tag in ("failure", "error") for part in case)]
    assert (done.returncode == 0) == (bool(cases) and not bad), done.stdout[-6000:]
    skipped = [case for case in cases if any(part.tag == "skipped" for part in case)]
    good = [case for case in cases if case not in bad and case not in skipped]
    return Run(done.stdout, Counter(case.attrib["file"] for case in good), Counter(case.attrib["file"] for case in bad))


def path_of_locks(name: str) -> str:
    return f"tests/portal/locks_on_postgres/{name}.py"


@pytest.mark.invariant("The Django apps behave on PostgreSQL as on SQLite.")
@pytest.mark.postgres
@pytest.mark.timeout(SECONDS + 20)
def test_tests_of_the_embedded_database_pass_on_postgresql(on_postgres: Run) -> None:
    on_postgres.expect_success_of(*AGAIN)


@pytest.mark.postgres
@pytest.mark.timeout(SECONDS + 20)
def test_a_database_of_an_earlier_version_is_brought_up_to_date(on_postgres: Run) -> None:
    on_postgres.expect_success_of(OLDER)


@pytest.mark.postgres
@pytest.mark.timeout(SECONDS + 20)
@pytest.mark.parametrize("name", LOCKS)
def test_of_two_concurrent_transactions_the_second_waits_for_the_first(name: str, on_postgres: Run) -> None:
    on_postgres.expect_success_of(path_of_locks(name))
