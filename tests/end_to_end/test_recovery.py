"""Replicas that are killed in mid-run: the job goes on within the same attempt and tells what happened."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from regatta import Client, Job
from tests.end_to_end import code, processes
from tests.end_to_end.house import House, is_of_a_replica
from tests.end_to_end.processes import until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]
END_SECONDS = 60.0


def trains(portal: Client, job: Job, replica: str, steps: int) -> bool:
    return any(line.text == f"step {steps}" for line in portal.logs(job.id, replica=replica))


def story(portal: Client, job: Job) -> list[str]:
    return [event["text"] for event in portal.events(job.id)]


@pytest.mark.parametrize(
    "victims",
    [("master-0",), ("pserver-0",), ("trainer-1",), ("master-0", "pserver-0"), ("pserver-0", "trainer-1")],
    ids=" and ".join,
)
def test_who_is_killed_is_started_again_and_the_job_goes_on(
    house: House, portal: Client, victims: tuple[str, ...]
) -> None:
    job = portal.submit(code.slow(f"kill-{'-'.join(victims)}", passes=16, pause=0.03))
    until("it trains", lambda: trains(portal, job, "trainer-1", 5), END_SECONDS)
    for process in [process for victim in victims for process in house.replica(job.id, victim)]:
        processes.kill(process.pid)
    ended = portal.wait(job.id, END_SECONDS)
    told = story(portal, ended)
    assert (ended.state, ended.attempt, ended.why) == ("SUCCEEDED", 1, "Trained with 2 trainers."), told
    for victim in victims:
        assert any(
            text.startswith(f"{victim} was ended by signal 9 (SIGKILL); started again (1 of 3)") for text in told
        )
    lines = list(portal.logs(job.id))
    rate = portal.metrics(job.id)["records_per_second"]
    # Two trainers with 64 records every 0.03 s at most: no loss and no comeback makes it look faster, or negative.
    assert 0 < min(rate.min) <= max(rate.max) < 1.2 * 2 * 64 / 0.03
    assert [line.seq for line in lines] == list(range(1, len(lines) + 1))


def test_a_master_that_stands_by_goes_on_when_the_first_is_lost(
    house: House, portal: Client, http: httpx.Client
) -> None:
    wish = code.slow("two-masters", passes=16, pause=0.03)
    wish["roles"] = {**wish["roles"], "master": {"replicas": 2}}
    job = portal.submit(wish)
    until("it trains", lambda: trains(portal, job, "trainer-1", 5), END_SECONDS)
    masters = [one for one in http.get(f"/api/v1/jobs/{job.id}").json()["replicas"] if one["role"] == "master"]
    [second] = [one["name"] for one in masters if one["why"].startswith("Stands by, and takes over if ")]
    [first] = [one["name"] for one in masters if one["name"] != second]
    for process in house.replica(job.id, first):
        processes.kill(process.pid)
    ended = portal.wait(job.id, END_SECONDS)
    told = story(portal, ended)
    assert (ended.state, ended.attempt, ended.why) == ("SUCCEEDED", 1, "Trained with 2 trainers."), told
    assert any(line.text == f"{first} serves; this master stands by." for line in portal.logs(job.id, replica=second))


def test_a_job_whose_processes_are_all_killed_goes_on_as_its_next_attempt(tmp_path: Path) -> None:
    house = House(tmp_path / "portal", REGATTA_CHECKPOINT_SECONDS="0.5")
    try:
        house.start()
        with house.client() as portal:
            job = portal.submit(code.slow("kill-all", passes=30, pause=0.03))
            kept = "checkpoint of version"
            until("it keeps something", lambda: any(kept in line.text for line in portal.logs(job.id)), END_SECONDS)
            for process in house.processes():
                if is_of_a_replica(process):
                    processes.kill(process.pid)
            ended = portal.wait(job.id, END_SECONDS)
            told = story(portal, ended)
            assert (ended.state, ended.attempt) == ("SUCCEEDED", 2), told
            assert any(text.startswith("Parameter server 0 goes on from version") for text in told), told
            assert any(text.startswith("The data goes on in pass") for text in told), told
        assert not list((tmp_path / "portal" / "attempts" / "checkpoints").iterdir())
    finally:
        house.remove()


def test_a_job_survives_its_rehearsal(portal: Client, http: httpx.Client) -> None:
    job = portal.submit(code.slow("rehearsed", passes=30, pause=0.03))
    until("it trains", lambda: trains(portal, job, "trainer-1", 5), END_SECONDS)
    path = f"/api/v1/jobs/{job.id}/rehearse"
    assert http.post(path, json={"kill": "trainer", "every": "2s"}).status_code == 202
    again = "started again (as it was rehearsed)"
    until("two have been killed", lambda: sum(again in text for text in story(portal, job)) >= 2, END_SECONDS)
    assert http.delete(path).json()["rehearsal"] is None
    ended = portal.wait(job.id, END_SECONDS)
    told = story(portal, ended)
    assert (ended.state, ended.attempt, ended.why) == ("SUCCEEDED", 1, "Trained with 2 trainers."), told
    assert "trainer-1 is killed: admin rehearses failure (1 of 20)." in told
    assert "admin ends the rehearsal." in told
