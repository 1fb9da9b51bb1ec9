"""The upgrade of a large installation while its jobs run: from the last release to this one, and to the next.

The tests measure times: ``timed``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import psycopg
import pytest

from tests.portal.database import large_installation as installation
from tests.portal.database.large_installation import JOBS
from tests.portal.database.portal_load import Load
from tests.servers.postgres_server import PostgresServer

pytestmark = [pytest.mark.postgres, pytest.mark.timed, pytest.mark.timeout(300)]
NEXT = "tests.portal.database.next_release.settings"
# No query takes longer. Those that wait behind a migration wait for LOCK_SECONDS; the rest is the machine.
BOUND_SECONDS = 1.0
# The current release on the schema of the next: its prepare, a page, and a new job.
_USE = """
from django.core.management import call_command
from django.test import Client
from jobs.selectors.specifications import parse
from jobs.services.jobs import submit_job
from rbac.models import User
from tests.personas import session_of
call_command("prepare")
ada = User.objects.get(username="ada")
job = submit_job(actor=ada, namespace="team", spec=parse({"name": "after", "files": {"train.py": "pass"}})).job
page = Client(SERVER_NAME="localhost", headers={"cookie": f"regatta-session={session_of(ada)}"}).get("/n/team/jobs")
print("answer", page.status_code, "after" in page.text, "job-100000" in page.text, job.state)
"""


@dataclass
class Upgraded:
    """An installation after the upgrade: what the load measured, the output, and the sums before it."""

    url: str
    environment: Mapping[str, str]
    load: Load
    output: str
    columns: Mapping[str, list[str]]
    before: Mapping[str, tuple[int, int]]

    def number(self, query: str) -> int:
        with psycopg.connect(self.url) as connection:
            row = connection.execute(query).fetchone()
        assert row is not None
        return int(row[0])


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def upgraded(server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Upgraded:
    """Upgrade to the next release while jobs run, and a long transaction is in the way at first."""
    environment = installation.environment_of(server.url, tmp_path_factory.mktemp("upgraded"), NEXT)
    installation.migrate_to_last_release(environment)
    installation.fill(server.url)
    columns = installation.columns_of(server.url)
    before, load = installation.sums_of(server.url, columns), Load()
    with load.running(server.url):
        with psycopg.connect(server.url) as long:
            long.execute("SELECT count(*) FROM jobs_job")
            process = installation.start(environment, "prepare")
            assert process.stdout is not None
            first = process.stdout.readline()
        output = first + installation.succeed(process)
    print(
        "calls:", dict(load.done), "longest in seconds:", {kind: round(each, 3) for kind, each in load.longest.items()}
    )
    return Upgraded(server.url, environment, load, output, columns, before)


@pytest.mark.invariant("An upgrade while jobs run stops no query for longer than a second.")
def test_no_query_of_a_running_portal_waits_for_long(upgraded: Upgraded) -> None:
    assert upgraded.load.failed == []
    assert min(upgraded.load.done.values()) > 100
    assert max(upgraded.load.longest.values()) < BOUND_SECONDS, upgraded.load.longest


@pytest.mark.invariant("An upgrade loses and changes no row.")
def test_every_row_is_as_it_was(upgraded: Upgraded) -> None:
    assert installation.sums_of(upgraded.url, upgraded.columns) == upgraded.before


def test_everything_that_running_jobs_wrote_meanwhile_is_there(upgraded: Upgraded) -> None:
    done = upgraded.load.done
    assert upgraded.number(f"SELECT sum(revision) - 5 * {JOBS} FROM jobs_job WHERE name <> 'after'") == done["move"]
    assert (
        upgraded.number(f"SELECT count(*) - {JOBS} FROM jobs_transition WHERE old = 'RUNNING' OR id <= {JOBS}")
        == (done["move"])
    )
    assert upgraded.number(f"SELECT count(*) - {JOBS} FROM jobs_block") == done["ingest"]


def test_prepare_names_the_transaction_that_it_waited_for(upgraded: Upgraded) -> None:
    assert "The migration waits for a lock. The oldest transaction is that of process" in upgraded.output


def test_every_migration_has_run(upgraded: Upgraded) -> None:
    assert upgraded.number("SELECT count(*) FROM jobs_job WHERE hours IS NULL AND finished IS NOT NULL") == 0
    assert upgraded.number("SELECT count(*) FROM pg_index WHERE NOT indisvalid") == 0
    assert upgraded.number("SELECT count(*) FROM pg_constraint WHERE NOT convalidated") == 0


@pytest.mark.invariant("The code of a release runs on the schema of the next.")
def test_the_release_before_starts_serves_the_job_list_and_takes_a_job(upgraded: Upgraded) -> None:
    environment = {**upgraded.environment, "DJANGO_SETTINGS_MODULE": "portal.settings"}
    assert "answer 200 True True QUEUED" in installation.run_code(environment, _USE)
