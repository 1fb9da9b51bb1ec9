"""Launch plans: commands, environments and quota amounts of an attempt."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from jobs.backends.base import AttemptRef, LaunchPlan
from jobs.launch.planner import Build, LaunchSettings, make_plan
from jobs.launch.roles import amounts, each_replica
from jobs.spec.model import JobSpec, RoleSpec
from runtime import contract

SETTINGS = LaunchSettings("http://portal", (), Path("/platform/python"), timedelta(seconds=10), 1000)
BUILD = Build(Path("/code"), Path("/job/python"))
REF = AttemptRef(job_id="1", attempt_id="2", number=1)


def trainer_of(**fields: str) -> tuple[str, ...]:
    spec = JobSpec(**{"name": "line", "entrypoint": "train.py", "trainer": RoleSpec(), "pserver": RoleSpec(), **fields})
    plan = make_plan(REF, "workspace", spec, BUILD, SETTINGS, "token")
    return next(replica.command for replica in plan.replicas if replica.role == "trainer")


def test_a_script_runs_in_the_job_s_python() -> None:
    assert trainer_of() == ("/job/python", "train.py")


def test_a_second_master_is_planned_and_paid_for() -> None:
    one, two = (JobSpec("line", "train.py", RoleSpec(), RoleSpec(), masters=masters) for masters in (1, 2))
    assert [name for name, index, _ in each_replica(two) if index] == ["master"]
    assert amounts(two)["cpu"] == amounts(one)["cpu"] + 0.5


def test_a_master_has_the_cores_of_the_specification() -> None:
    spec = JobSpec("line", "train.py", RoleSpec(), RoleSpec(), masters=2, master_cpu=0.1)
    assert amounts(spec)["cpu"] == 2.2
    assert amounts(JobSpec.from_json(spec.to_json()))["cpu"] == 2.2


def test_a_trainer_waits_for_the_others_longer_than_the_platform() -> None:
    spec = JobSpec("line", "train.py", RoleSpec(), RoleSpec())
    plan = make_plan(REF, "workspace", spec, BUILD, replace(SETTINGS, registration=600.0), "token")
    waits = {float(one.environment[contract.GATHER]) for one in plan.replicas if one.role == contract.TRAINER}
    assert min(waits) > 600


def test_a_command_runs_beside_the_gateway_word_for_word() -> None:
    command = trainer_of(framework="command", entrypoint="sh train.sh 'two words'")
    assert command == ("/job/python", "-m", "runtime.gateway", "--", "sh", "train.sh", "two words")


def planned(framework: str, pservers: int, trainers: int = 2, **fields: str) -> LaunchPlan:
    servers = RoleSpec(replicas=pservers, max=pservers)
    words = {"entrypoint": "train.py", "framework": framework, **fields}
    spec = JobSpec(name="line", trainer=RoleSpec(replicas=trainers), pserver=servers, **words)
    return make_plan(REF, "workspace", spec, BUILD, SETTINGS, "token")


@pytest.mark.parametrize(
    ("framework", "pservers", "names"),
    [
        ("native", 1, ["master-0", "pserver-0", "trainer-0", "trainer-1"]),
        ("command", 1, ["master-0", "pserver-0", "trainer-0", "trainer-1"]),
        ("command", 0, ["trainer-0", "trainer-1"]),
        ("paddle", 2, ["pserver-0", "pserver-1", "trainer-0", "trainer-1"]),
        ("paddle", 0, ["trainer-0", "trainer-1"]),
        ("torch", 0, ["trainer-0", "trainer-1"]),
    ],
)
def test_the_roles_of_each_framework(framework: str, pservers: int, names: list[str]) -> None:
    plan = planned(framework, pservers)
    assert (plan.framework, [replica.name for replica in plan.replicas]) == (framework, names)


def test_a_fleet_runs_its_script_in_servers_and_trainers_alike() -> None:
    launcher = ("/job/python", "-m", "runtime.launch", "--", "/job/python", "train.py")
    assert {replica.command for replica in planned("paddle", 1).replicas} == {launcher}


def test_a_command_without_servers_runs_alone() -> None:
    (trainer,) = planned("command", 0, trainers=1, entrypoint="sh train.sh").replicas
    assert trainer.command == ("/job/python", "-m", "runtime.launch", "--", "sh", "train.sh")


def test_replicas_that_run_user_code_are_marked_and_get_the_user_s_variables() -> None:
    marked = {
        replica.name: (replica.runs_user_code, "REGATTA_USER_ENVIRONMENT" in replica.environment)
        for framework in ("native", "paddle")
        for replica in planned(framework, 1, trainers=1, env={"RATE": "1"}).replicas
        if framework == "paddle" or replica.role != "trainer"
    }
    assert marked == {"master-0": (False, False), "pserver-0": (True, True), "trainer-0": (True, True)}
    assert not any(one.runs_user_code for one in planned("native", 1).replicas if one.role != "trainer")


def test_replicas_that_run_user_code_get_the_parameters_of_the_job() -> None:
    plan = planned("native", 1, trainers=1, params={"lr": 0.1, "adam.eps": "1e-8", "nesterov": True})
    found = {
        replica.name: {name: text for name, text in replica.environment.items() if contract.is_parameter(name)}
        for replica in plan.replicas
    }
    assert found == {
        "master-0": {},
        "pserver-0": {},
        "trainer-0": {
            "REGATTA_PARAMS": '{"lr":0.1,"adam.eps":"1e-8","nesterov":true}',
            "REGATTA_PARAM_LR": "0.1",
            "REGATTA_PARAM_ADAM_EPS": "1e-8",
            "REGATTA_PARAM_NESTEROV": "true",
        },
    }


@pytest.mark.parametrize("trace", ["", "00-a-b-01"])
def test_every_replica_gets_the_trace_of_the_launch_if_there_is_one(trace: str) -> None:
    spec = JobSpec(name="line", entrypoint="train.py", trainer=RoleSpec(), pserver=RoleSpec())
    plan = make_plan(REF, "workspace", spec, BUILD, replace(SETTINGS, traceparent=trace), "token")
    assert {one.environment.get("REGATTA_TRACEPARENT", "") for one in plan.replicas} == {trace}


def test_printed_costs_count_where_the_platform_s_own_runtime_does_not_report() -> None:
    def counts(framework: str) -> bool:
        return planned(framework, 0).replicas[-1].environment.get("REGATTA_COST_LINES") == "1"

    assert [counts(framework) for framework in ("native", "paddle", "torch", "command")] == [False, True, True, True]
