"""What-if questions about the present jobs under other settings."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

from jobs.elastic.policy.model import Amounts, Cluster, Core, Job, Node
from jobs.elastic.simulation.what_if import MOST_JOBS, Question, Settings, answer, question

ONE = Amounts(1000, 100)


def there(cores: int = 8, waiting: int = 2) -> Cluster:
    """Return a cluster with one running job (four trainers and a server) and some waiting ones."""
    runs = Job("runs", 1, 8, ONE, started=5.0, trainers={"n": 4}, held={"n": ONE}, submitted=1.0)
    waits = [Job(f"waits-{n}", 2, 2, ONE, Core(server=ONE, servers=1), submitted=2.0 + n) for n in range(waiting)]
    return Cluster([Node("n", Amounts(cores * 1000, 64_000))], [*reversed(waits), runs])


def test_all_jobs_start_again_the_running_ones_first() -> None:
    asked = question(there(), Settings(window=600.0))
    assert [job.key for job in asked.jobs] == ["runs", "waits-0", "waits-1"]
    found = answer(asked)
    assert [fate["began"] for fate in found["jobs"]] == [True, True, True]
    assert found["figures"]["never_started"] == 0


def test_more_cores_shorten_the_wait_of_jobs_that_did_not_fit() -> None:
    asked = question(there(cores=4, waiting=2), Settings(window=600.0, work=6000.0))
    few, many = answer(asked), answer(asked.with_cores(12))
    assert (few["figures"]["never_started"], many["figures"]["never_started"]) == (2, 0)


def test_other_policies_can_be_asked_about() -> None:
    fixed = answer(question(there(), Settings(policy="fixed", window=300.0)))
    assert fixed["figures"]["resizes"] == 0


def test_a_question_is_the_same_after_its_way_to_another_process() -> None:
    asked = question(there(), Settings())
    assert Question.from_json(json.loads(json.dumps(asked.to_json()))) == asked


def test_a_crowd_is_cut() -> None:
    crowd = replace(there(), jobs=[Job(f"j{n}", 1, 1, ONE) for n in range(MOST_JOBS + 50)])
    assert len(question(crowd, Settings()).jobs) == MOST_JOBS


def test_the_command_answers_as_many_questions_as_it_is_asked() -> None:
    asked = question(there(), Settings(window=60.0)).to_json()
    ran = subprocess.run(
        [sys.executable, "-m", "jobs.elastic", "what-if"],
        input=json.dumps([asked, asked]),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    first, second = json.loads(ran.stdout)
    assert first == second


def test_no_job_is_stopped_for_another_as_on_the_platform() -> None:
    low = Job("low", 4, 4, ONE, priority=-1, started=5.0, trainers={"n": 4}, submitted=1.0)
    high = Job("high", 4, 4, ONE, priority=1, submitted=2.0)
    asked = question(Cluster([Node("n", Amounts(4000, 64_000))], [low, high]), Settings(window=600.0, work=6000.0))
    assert [(fate["key"], fate["trainers"]) for fate in answer(asked)["jobs"]] == [("low", 4), ("high", 0)]
