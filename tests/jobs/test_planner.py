"""What an attempt's processes are started with."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from jobs.backends.base import AttemptRef
from jobs.planner import Build, Site, amounts, make_plan, replicas
from jobs.spec import JobSpec, RoleSpec

SITE = Site("http://portal", (), Path("/platform/python"), timedelta(seconds=10), 1000)
BUILD = Build(Path("/code"), Path("/job/python"))
REF = AttemptRef(job_id="1", attempt_id="2", number=1)


def trainer_of(**fields: str) -> tuple[str, ...]:
    spec = JobSpec(**{"name": "line", "entrypoint": "train.py", "trainer": RoleSpec(), "pserver": RoleSpec(), **fields})
    plan = make_plan(REF, "room", spec, BUILD, SITE, "token")
    return next(replica.command for replica in plan.replicas if replica.role == "trainer")


def test_a_script_runs_in_the_job_s_python() -> None:
    assert trainer_of() == ("/job/python", "train.py")


def test_a_second_master_is_planned_and_paid_for() -> None:
    one, two = (JobSpec("line", "train.py", RoleSpec(), RoleSpec(), masters=masters) for masters in (1, 2))
    assert [name for name, index, _ in replicas(two) if index] == ["master"]
    assert amounts(two)["cpu"] == amounts(one)["cpu"] + 0.5


def test_a_command_runs_beside_the_gateway_word_for_word() -> None:
    command = trainer_of(framework="command", entrypoint="sh train.sh 'two words'")
    assert command == ("/job/python", "-m", "runtime.gateway", "--", "sh", "train.sh", "two words")
