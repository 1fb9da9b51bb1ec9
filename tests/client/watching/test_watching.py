"""Watching a job from a cell: Ctrl-C, and jobs that fail."""

from __future__ import annotations

import pytest

from regatta import Iteration, Job, JobFailed
from regatta.watching.watching import Watching, checked
from tests.client.portal import client, job, ok
from tests.client.watching.test_iterations import JOB, POINTS, page, point

LOGS = "GET /api/v1/jobs/j1/logs"


class Screen:
    """Keeps nothing."""

    def show(self, html: str, text: str, *, final: bool) -> None: ...


def test_ctrl_c_ends_the_watching_and_not_the_job(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupts_at_2(iteration: Iteration) -> None:
        if iteration.step == 2:
            raise KeyboardInterrupt

    pages = [page(point(1, 1), point(2, 2), point(3, 3))]
    portal, paper, _ = client({JOB: [ok(job())], POINTS: pages})
    left = Watching(Job.from_json(job(), portal.jobs), interrupts_at_2, screen=Screen()).wait()
    said = capsys.readouterr().err
    assert (left.state, [request.method for request in paper.asked]) == ("RUNNING", ["GET", "GET"])
    assert "Stopped watching. The job digits keeps running." in said
    assert "job.watch(callback, after=1)" in said
    assert "regatta cancel j1" in said


def test_a_failed_job_is_raised_with_the_traceback_of_one_replica() -> None:
    texts = [
        ("trainer-0", "Traceback (most recent call last):"),
        ("trainer-1", "between"),
        ("trainer-0", "    f()"),
        ("trainer-0", "KeyError: 'rate'"),
        ("trainer-0", "after"),
    ]
    lines = [
        {"seq": seq, "time": 0, "replica": replica, "stream": "stderr", "text": text}
        for seq, (replica, text) in enumerate(texts, start=1)
    ]
    portal, _, _ = client({LOGS: [ok({"lines": lines, "first": 1, "last": 5, "more": False})]})
    with pytest.raises(JobFailed) as failed:
        checked(Job.from_json(job("FAILED"), portal.jobs))
    assert failed.value.detail.splitlines()[1:] == ["trainer-0:", texts[0][1], texts[2][1], texts[3][1]]
    assert (failed.value.exit_code, failed.value.job.state) == (100, "FAILED")
