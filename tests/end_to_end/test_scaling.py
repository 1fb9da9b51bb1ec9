"""Trainers that join and leave during a run, in both modes."""

from __future__ import annotations

import re

import httpx
import pytest

from jobs.messages import jobs as job_messages
from regatta import Client
from runtime.messages import paragraph
from runtime.messages import training as training_messages
from tests.end_to_end.support import code
from tests.end_to_end.support.portal import RunningPortal
from tests.messages import mentions
from tests.waiting import until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]
END_SECONDS = 60.0
ASKED = training_messages.STOPPED()


def trains(portal: Client, job_id: str, replica: str) -> bool:
    return any(line.text == "step 3" for line in portal.jobs.logs.read(job_id, replica=replica))


def scale(http: httpx.Client, job_id: str, trainers: int) -> None:
    assert http.post(f"/api/v1/jobs/{job_id}/scale", json={"trainer": trainers}).status_code == 202


def test_the_next_attempt_continues_with_another_number_of_parameter_servers(
    running_portal: RunningPortal, portal: Client, http: httpx.Client
) -> None:
    job = portal.jobs.submit(code.slow("resized", passes=2, trainers=1))
    until("it trains", lambda: trains(portal, job.id, "trainer-0"), END_SECONDS)
    answer = http.post(f"/api/v1/jobs/{job.id}/scale", json={"pserver": 2})
    assert (answer.status_code, answer.json()["pservers"]) == (202, 2)
    assert http.post(f"/api/v1/jobs/{job.id}/cancel").status_code == 202
    portal.jobs.wait(job.id, END_SECONDS)
    assert http.post(f"/api/v1/jobs/{job.id}/retry").status_code == 202
    until("it trains again", lambda: running_portal.replica(job.id, "trainer-0"), END_SECONDS)
    running_portal.release(job.id)
    ended = portal.jobs.wait(job.id, END_SECONDS)
    messages = [event["text"] for event in portal.jobs.events(job.id)]
    assert (ended.state, ended.attempt) == ("SUCCEEDED", 2), messages
    assert (
        paragraph(
            job_messages.SCALED(before=1, replicas=job_messages.PSERVER_COUNT(count=2), name="admin"),
            job_messages.SCALING_TAKES_EFFECT_LATER(),
        )
        in messages
    )
    for server in (0, 1):
        goes_on = re.compile(rf"Parameter server {server} resumes from version [1-9]\d* of 1 servers\.")
        assert any(map(goes_on.fullmatch, messages)), messages


@pytest.mark.invariant("Trainers join and leave while the job runs.")
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_trainers_join_and_leave_while_the_job_runs(
    running_portal: RunningPortal, portal: Client, http: httpx.Client, mode: str
) -> None:
    spec = code.slow(f"elastic-{mode}", passes=8, trainers=1)
    spec["mode"], spec["roles"]["trainer"]["max"], spec["elastic"] = mode, 3, False
    job = portal.jobs.submit(spec)
    until("trainer-0 trains", lambda: trains(portal, job.id, "trainer-0"), END_SECONDS)
    scale(http, job.id, 3)
    until("both newcomers train", lambda: all(trains(portal, job.id, f"trainer-{n}") for n in (1, 2)), END_SECONDS)
    scale(http, job.id, 1)
    until(
        "both have left", lambda: [one.why for one in portal.jobs.get(job.id).replicas].count(ASKED) == 2, END_SECONDS
    )
    running_portal.release(job.id)
    ended = portal.jobs.wait(job.id, END_SECONDS)
    messages = [event["text"] for event in portal.jobs.events(job.id)]
    assert (ended.state, ended.attempt, ended.why) == (
        "SUCCEEDED",
        1,
        job_messages.TRAINED(trainers=job_messages.TRAINER_COUNT_ONE(count=1)),
    ), messages
    assert [text for text in messages if mentions(text, job_messages.SCALED)] == [
        job_messages.SCALED(before=1, replicas=training_messages.TRAINER_COUNT(count=3), name="admin"),
        job_messages.SCALED(before=3, replicas=training_messages.TRAINER_COUNT_ONE(count=1), name="admin"),
    ]
    left = {replica.name: replica.why for replica in ended.replicas}
    assert (left["trainer-1"], left["trainer-2"]) == (ASKED, ASKED)
