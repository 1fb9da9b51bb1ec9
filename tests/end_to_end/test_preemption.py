"""Lent capacity is reclaimed: with real processes, and shown on the page."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httpx
import pytest

from quota import messages as quota_messages
from regatta import Client
from runtime.messages import training as training_messages
from tests.end_to_end.support import code
from tests.end_to_end.support.portal import ADMIN, PASSWORD, RunningPortal
from tests.messages import mentions
from tests.waiting import until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]
END_SECONDS = 60.0
OWNERS = "lenders"


@pytest.fixture
def lent(http: httpx.Client) -> Iterator[None]:
    """The platform has capacity for one job; it belongs to ``lenders``, and the admin's own namespace may borrow it."""
    limits = {ADMIN: {"limits": {"cpu": 0}, "borrow": {"cpu": 8}}, OWNERS: {"limits": {"cpu": 8}}}
    assert http.post("/api/v1/namespaces", json={"name": OWNERS, "owner": ADMIN}).status_code == 201
    for name, body in limits.items():
        assert http.put(f"/api/v1/namespaces/{name}/quota", json=body).status_code == 200
    assert http.put("/api/v1/capacity", json={"capacity": {"cpu": 3}}).status_code == 200
    yield
    http.put("/api/v1/capacity", json={"capacity": {"cpu": None}})
    http.put(f"/api/v1/namespaces/{ADMIN}/quota", json={"limits": {"cpu": None}, "borrow": {"cpu": None}})


def let_an_hour_pass(running_portal: RunningPortal, job: str) -> None:
    """Set the start to an hour ago: a borrower keeps its capacity for at least ten minutes."""
    with closing(sqlite3.connect(running_portal.directory / "regatta.sqlite3", timeout=20)) as database, database:
        moved = "UPDATE quota_reservation SET created = datetime(created, '-1 hour') WHERE job = ?"
        assert database.execute(moved, [job.replace("-", "")]).rowcount == 1


def page_of(running_portal: RunningPortal, job: str) -> str:
    with httpx.Client(base_url=running_portal.address, timeout=30, follow_redirects=True) as browser:
        form = browser.get("/sign-in").text
        token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', form)
        assert token is not None
        fields = {"username": ADMIN, "password": PASSWORD, "csrfmiddlewaretoken": token[1]}
        browser.post("/sign-in", data=fields, headers={"Referer": running_portal.address})
        return browser.get(f"/n/{ADMIN}/jobs/{job}").text


def trains(portal: Client, job: str, step: int, attempt: int) -> bool:
    return portal.jobs.get(job).attempt == attempt and any(
        line.text == f"step {step}" for line in portal.jobs.logs.read(job)
    )


def steps(portal: Client, job: str) -> int:
    """Return the number of steps of its last attempt."""
    return int([line.text for line in portal.jobs.logs.read(job) if line.text.startswith("steps ")][-1].split()[1])


@pytest.mark.invariant("A job that returns borrowed capacity continues from its checkpoint.")
@pytest.mark.usefixtures("lent")
def test_what_was_lent_is_given_back_and_the_borrower_goes_on_from_its_checkpoint(
    running_portal: RunningPortal, portal: Client, http: httpx.Client
) -> None:
    borrower = portal.jobs.submit(code.slow("borrower", passes=4, pause=0.02, trainers=1))
    until("the borrower trains", lambda: trains(portal, borrower.id, 30, 1), END_SECONDS)
    let_an_hour_pass(running_portal, borrower.id)
    made: dict[str, Any] = http.post(
        f"/api/v1/namespaces/{OWNERS}/jobs", json=code.slow("owner", passes=1, pause=0.02, trainers=1)
    ).json()
    until("the borrower has made way", lambda: portal.jobs.get(borrower.id).attempt == 2, END_SECONDS)
    assert "Waiting for quota. The job needs 2.5 CPU; 0.5 of 3 are free on the platform" in page_of(
        running_portal, borrower.id
    )
    assert portal.jobs.wait(made["id"], END_SECONDS).attempt == 1
    ended = portal.jobs.wait(borrower.id, END_SECONDS)
    messages = [event["text"] for event in portal.jobs.events(borrower.id)]
    assert (ended.state, ended.attempt) == ("SUCCEEDED", 2), messages
    assert quota_messages.CAPACITY_RECLAIMED_BY(namespace=OWNERS) in " ".join(messages)
    assert any(
        mentions(text, training_messages.PSERVER_RESUMES) or mentions(text, training_messages.DATA_RESUMES)
        for text in messages
    ), messages
    a_pass = steps(portal, made["id"])
    assert steps(portal, borrower.id) < 4 * a_pass, "the second attempt started from the beginning"
