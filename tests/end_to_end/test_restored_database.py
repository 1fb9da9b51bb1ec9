"""A database that is restored to an earlier state while a job runs: the job continues, and no line is lost."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from regatta import Client, Job
from tests.end_to_end.support import code
from tests.end_to_end.support.portal import RunningPortal
from tests.waiting import until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]
END_SECONDS = 90.0


def copy(source: Path, target: Path) -> None:
    with sqlite3.connect(source) as old, sqlite3.connect(target) as new:
        old.backup(new)


def lines(portal: Client, job: Job) -> list[str]:
    return [line.text for line in portal.jobs.logs.read(job.id)]


@pytest.mark.invariant("A job that runs while the database is restored to an earlier state continues without a loss.")
def test_a_job_continues_over_a_restoration_and_a_later_one_is_stopped(tmp_path: Path) -> None:
    running_portal = RunningPortal(tmp_path / "portal")
    database, backup = running_portal.directory / "regatta.sqlite3", tmp_path / "backup.sqlite3"
    with running_portal.open():
        portal = running_portal.client()
        job = portal.jobs.submit(code.slow("kept", trainers=1))
        until("it trains", lambda: len(lines(portal, job)) > 5, END_SECONDS)
        copy(database, backup)
        stored = len(lines(portal, job))
        later = portal.jobs.submit(code.slow("later", trainers=1))
        until("the later one trains", lambda: len(lines(portal, later)) > 5, END_SECONDS)
        until("the first one trains on", lambda: len(lines(portal, job)) > stored + 5, END_SECONDS)
        running_portal.crash()  # agents go on
        for path in running_portal.directory.glob(f"{database.name}-*"):
            path.unlink()
        copy(backup, database)
        printed = running_portal.manage("after_restore")
        assert "Attempts that continue: 1" in printed
        assert "Attempts that are unknown to the database: 1" in printed
        assert running_portal.replica(later.id, "trainer-0") == []
        running_portal.start()
        portal = running_portal.client()
        assert [each.name for each in portal.jobs.list(namespace=job.namespace)] == ["kept"]
        running_portal.release(job.id)
        ended = portal.jobs.wait(job.id, END_SECONDS)
        assert (ended.state, ended.attempt) == ("SUCCEEDED", 1), ended.why
        texts = [line.text for line in portal.jobs.logs.read(job.id, replica="trainer-0")]
        steps = [int(text.split()[1]) for text in texts if text.startswith("step ")]
        assert steps == list(range(1, len(steps) + 1))
        assert len(steps) > stored
