"""Replicas that are killed during a run: the job continues within the same attempt and reports what happened."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from jobs.lifecycle.attempt_end import MASTER_REPORT_DELAY
from jobs.messages import jobs as job_messages
from regatta import Client, Job
from runtime.messages import training as training_messages
from tests.end_to_end.support import code, processes
from tests.end_to_end.support.portal import RunningPortal, is_of_a_replica
from tests.messages import mentions
from tests.waiting import let_pass, until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]
END_SECONDS = 60.0
PAUSE = 0.1


def trains(portal: Client, job: Job, replica: str, steps: int) -> bool:
    return any(line.text == f"step {steps}" for line in portal.jobs.logs.read(job.id, replica=replica))


def steps(portal: Client, job: Job) -> int:
    """Return the number of steps of all trainers so far."""
    return sum(line.text.startswith("step ") for line in portal.jobs.logs.read(job.id))


def reports(portal: Client, job: Job, beginning: str) -> bool:
    return any(text.startswith(beginning) for text in messages_of(portal, job))


def messages_of(portal: Client, job: Job) -> list[str]:
    return [event["text"] for event in portal.jobs.events(job.id)]


def killed(portal: Client, job: Job) -> int:
    """Return how often the rehearsal has killed so far."""
    return sum(mentions(text, job_messages.REHEARSAL_KILL, name="admin") for text in messages_of(portal, job))


def all_are_registered(http: httpx.Client, job: Job) -> bool:
    return {one["state"] for one in http.get(f"/api/v1/jobs/{job.id}").json()["replicas"]} == {"registered"}


def wait_for_all(http: httpx.Client, job: Job) -> None:
    """Wait until every replica is registered: one that registers just before the job's end does not count."""
    until("all are registered", lambda: all_are_registered(http, job), END_SECONDS)
    let_pass(MASTER_REPORT_DELAY.total_seconds())


@pytest.mark.invariant("A killed replica is restarted in the same attempt, without a lost or duplicated log line.")
@pytest.mark.parametrize(
    "victims",
    [("trainer-1",), ("master-0", "pserver-0")],
    ids=" and ".join,
)
def test_who_is_killed_is_started_again_and_the_job_goes_on(
    running_portal: RunningPortal, portal: Client, http: httpx.Client, victims: tuple[str, ...]
) -> None:
    job = portal.jobs.submit(code.slow(f"kill-{'-'.join(victims)}", pause=PAUSE))
    until("it trains", lambda: trains(portal, job, "trainer-1", 5), END_SECONDS)
    for process in [process for victim in victims for process in running_portal.replica(job.id, victim)]:
        processes.kill(process.pid)
    for victim in victims:
        again = f"{victim} {training_messages.TERMINATED_BY_SIGNAL(signal='9 (SIGKILL)')}; restarted (1 of 3)"
        until(f"{victim} is back", lambda again=again: reports(portal, job, again), END_SECONDS)
    made = steps(portal, job)
    until("it trains on", lambda: steps(portal, job) > made + 10, END_SECONDS)
    rate = until(
        "its rate is reported", lambda: portal.jobs.metrics.series(job.id).get("records_per_second"), END_SECONDS
    )
    # Two trainers with 64 records in each pause at most: no loss and no restart may make it look faster, or negative.
    assert 0 < min(rate.min) <= max(rate.max) < 1.2 * 2 * 64 / PAUSE
    wait_for_all(http, job)
    running_portal.release(job.id)
    ended = portal.jobs.wait(job.id, END_SECONDS)
    assert (ended.state, ended.attempt, ended.why) == (
        "SUCCEEDED",
        1,
        job_messages.TRAINED(trainers=job_messages.TRAINER_COUNT(count=2)),
    ), messages_of(portal, ended)
    lines = list(portal.jobs.logs.read(job.id))
    assert [line.seq for line in lines] == list(range(1, len(lines) + 1))


def test_a_standby_master_takes_over_when_the_first_is_lost(
    running_portal: RunningPortal, portal: Client, http: httpx.Client
) -> None:
    spec = code.slow("two-masters", pause=PAUSE)
    spec["roles"] = {**spec["roles"], "master": {"replicas": 2}}
    job = portal.jobs.submit(spec)
    until("it trains", lambda: trains(portal, job, "trainer-1", 5), END_SECONDS)
    masters = [one for one in http.get(f"/api/v1/jobs/{job.id}").json()["replicas"] if one["role"] == "master"]
    [second] = [one["name"] for one in masters if mentions(one["why"], job_messages.ON_STANDBY)]
    [first] = [one["name"] for one in masters if one["name"] != second]
    for process in running_portal.replica(job.id, first):
        processes.kill(process.pid)
    serves = f"{first} serves; this master stands by."
    until(
        "it stood by", lambda: any(x.text == serves for x in portal.jobs.logs.read(job.id, replica=second)), END_SECONDS
    )
    made = steps(portal, job)
    until("it trains on", lambda: steps(portal, job) > made + 10, END_SECONDS)
    running_portal.release(job.id)
    ended = portal.jobs.wait(job.id, END_SECONDS)
    messages = messages_of(portal, ended)
    assert (ended.state, ended.attempt, ended.why) == (
        "SUCCEEDED",
        1,
        job_messages.TRAINED(trainers=job_messages.TRAINER_COUNT(count=2)),
    ), messages


def test_a_job_whose_processes_are_all_killed_continues_as_its_next_attempt(tmp_path: Path) -> None:
    running_portal = RunningPortal(tmp_path / "portal", REGATTA_CHECKPOINT_SECONDS="0.5")
    try:
        running_portal.start()
        with running_portal.client() as portal:
            job = portal.jobs.submit(code.slow("kill-all", passes=6))
            kept = "checkpoint of version"
            until(
                "it keeps something",
                lambda: any(kept in line.text for line in portal.jobs.logs.read(job.id)),
                END_SECONDS,
            )
            for process in running_portal.processes():
                if is_of_a_replica(process):
                    processes.kill(process.pid)
            goes_on = "Parameter server 0 resumes from version"
            until("it goes on", lambda: reports(portal, job, goes_on), END_SECONDS)
            running_portal.release(job.id)
            ended = portal.jobs.wait(job.id, END_SECONDS)
            messages = messages_of(portal, ended)
            assert (ended.state, ended.attempt) == ("SUCCEEDED", 2), messages
            assert any(mentions(text, training_messages.DATA_RESUMES) for text in messages), messages
        # The backend is called to forget once the job's end is committed.
        checkpoints = tmp_path / "portal" / "attempts" / "checkpoints"
        until("its checkpoints are removed", lambda: not list(checkpoints.iterdir()))
    finally:
        running_portal.remove()


def test_a_job_survives_its_rehearsal(running_portal: RunningPortal, portal: Client, http: httpx.Client) -> None:
    job = portal.jobs.submit(code.slow("rehearsed", passes=16))
    until("it trains", lambda: trains(portal, job, "trainer-1", 5), END_SECONDS)
    path = f"/api/v1/jobs/{job.id}/rehearse"
    assert http.post(path, json={"kill": "trainer", "every": "2s"}).status_code == 202
    again = "restarted (failure rehearsal)"
    until("two have been killed", lambda: sum(again in text for text in messages_of(portal, job)) >= 2, END_SECONDS)
    assert http.delete(path).json()["rehearsal"] is None
    # Not earlier: the others may end the job before a killed replica is back, and only theirs would be reported.
    until(
        "all are back",
        lambda: killed(portal, job) == sum(again in text for text in messages_of(portal, job)),
        END_SECONDS,
    )
    wait_for_all(http, job)
    running_portal.release(job.id)
    ended = portal.jobs.wait(job.id, END_SECONDS)
    messages = messages_of(portal, ended)
    assert (ended.state, ended.attempt, ended.why) == (
        "SUCCEEDED",
        1,
        job_messages.TRAINED(trainers=job_messages.TRAINER_COUNT(count=2)),
    ), messages
    assert job_messages.REHEARSAL_KILL(replica="trainer-1", name="admin", number=1, most=20) in messages
    assert job_messages.REHEARSAL_ENDED(name="admin") in messages
