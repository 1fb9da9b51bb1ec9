"""Faulty code ends with a clear message and affects nothing else."""

from __future__ import annotations

import time
from dataclasses import dataclass

import httpx
import pytest

from regatta import Client, Job
from runtime.messages import training as messages
from tests.end_to_end.support import code
from tests.end_to_end.support.portal import RunningPortal
from tests.end_to_end.support.processes import Process, of_attempt
from tests.messages import mentions
from tests.waiting import until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]
END_SECONDS = 90.0

SCRIPTS = {
    "raises": code.RAISES,
    "exits-3": code.EXITS_3,
    "never-registers": code.NEVER_REGISTERS,
    "not-utf-8": code.NOT_UTF_8,
    "long-line": code.TEN_MEGABYTE_LINE,
    "threads": code.STARTS_3000_THREADS,
}


@dataclass
class Submitted:
    jobs: dict[str, Job]

    def end(self, portal: Client, name: str) -> Job:
        return portal.jobs.wait(self.jobs[name].id, END_SECONDS)


@pytest.fixture(scope="module")
def submitted(running_portal: RunningPortal) -> Submitted:
    """All of them at once: they must not affect each other."""
    with running_portal.client() as portal:
        return Submitted({name: portal.jobs.submit(code.job(name, script)) for name, script in SCRIPTS.items()})


def text_of(portal: Client, job: Job, replica: str = "trainer-0") -> str:
    return "\n".join(line.text for line in portal.jobs.logs.read(job.id, replica=replica))


def test_a_script_that_raises_fails_with_its_traceback(portal: Client, submitted: Submitted) -> None:
    job = submitted.end(portal, "raises")
    assert job.state == "FAILED"
    assert "KeyError: 'rate'" in text_of(portal, job)
    assert "trainer-0" in job.why


def test_an_exit_code_is_reported(portal: Client, submitted: Submitted) -> None:
    job = submitted.end(portal, "exits-3")
    assert job.state == "FAILED"
    assert "3" in job.why
    assert "leaving" in text_of(portal, job)


def test_invalid_utf8_is_shown_as_such(portal: Client, submitted: Submitted) -> None:
    job = submitted.end(portal, "not-utf-8")
    (line,) = [line for line in text_of(portal, job).splitlines() if line.startswith("before")]
    assert line.endswith("after")


def test_an_endless_line_is_cut_and_marked(portal: Client, submitted: Submitted) -> None:
    job = submitted.end(portal, "long-line")
    long, *_, after = [line for line in text_of(portal, job).splitlines() if line.startswith(("xxx", "after"))]
    assert len(long) < 100_000
    assert after == "after the long line"


def test_threads_do_not_keep_a_script_alive_that_has_failed(portal: Client, submitted: Submitted) -> None:
    job = submitted.end(portal, "threads")
    assert job.state == "FAILED"
    assert "can't start new thread" in job.why or mentions(job.why, messages.TOO_MANY_PROCESSES)


def test_a_script_that_never_registers_is_ended_with_a_reason(portal: Client, submitted: Submitted) -> None:
    job = submitted.end(portal, "never-registers")
    assert job.state == "FAILED"
    assert "regist" in job.why.lower()
    assert "waiting" in text_of(portal, job)


@pytest.mark.timed
def test_a_hundred_thousand_lines_are_all_there_and_the_portal_answers(portal: Client, http: httpx.Client) -> None:
    job = portal.jobs.submit(code.job("chatter", code.PRINTS_100_000_LINES))
    slowest = 0.0
    while not portal.jobs.get(job.id).ended:
        began = time.monotonic()
        assert http.get("/api/v1/me").status_code == 200
        slowest = max(slowest, time.monotonic() - began)
    ended = portal.jobs.get(job.id)
    assert ended.state == "SUCCEEDED", ended
    numbers = [
        int(line.text.split()[1])
        for line in portal.jobs.logs.read(job.id, replica="trainer-0")
        if line.text[:5] == "line "
    ]
    assert numbers == list(range(1, 100_001))
    assert slowest < 3


def test_a_fork_bomb_is_limited(running_portal: RunningPortal, portal: Client, http: httpx.Client) -> None:
    job = portal.jobs.submit(code.job("bomb", code.FORKS_WITHOUT_END))
    until("it is launched", lambda: running_portal.attempts(job.id), 30)
    (attempt,) = running_portal.attempts(job.id)
    until("its agents and its code run", lambda: {"runtime.agent", "train.py"} <= kinds(of_attempt(attempt)), 30)
    ended = portal.jobs.wait(job.id, END_SECONDS)
    assert ended.state == "FAILED", ended
    assert "all 3000" not in text_of(portal, ended)
    assert http.get("/api/v1/me").status_code == 200
    until("nothing of it is left", lambda: not of_attempt(attempt), 10)


def kinds(found: list[Process]) -> set[str]:
    """Return which of agent and code are among the processes, by command: agents are forks with an older
    environment."""
    return {kind for kind in ("runtime.agent", "train.py") if any(kind in one.command for one in found)}
