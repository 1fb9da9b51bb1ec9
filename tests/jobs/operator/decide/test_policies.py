"""Failures, success, deadlines, gangs and stalls."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.operator.decide.plan import Plan
from jobs.operator.model.actions import Create
from jobs.operator.model.failure_policy import Failure, Rule, Verdict, judge, pause
from tests.jobs.operator.world import SUCCEEDED, World, failed, paddle_job, role, running

RETRYABLE = [{"exitCodes": ["1-127"], "action": "Fail"}, {"exitCodes": ["128-255"], "action": "Restart"}]


def job(rules: list[dict[str, Any]] | None = None, limit: int | None = None, **spec: Any) -> dict[str, Any]:
    policy = {"failurePolicy": {"rules": rules}} if rules else {}
    run = {} if limit is None else {"runPolicy": {"backoffLimit": limit}}
    return paddle_job(**{"worker": 2, **policy, **run, **spec})


# --- Failure ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("code", "limit", "expected"),
    [(1, 3, "Failed"), (127, 3, "Failed"), (128, 3, "Pending"), (255, 3, "Pending"), (137, 0, "Failed")],
)
def test_exit_codes_decide_what_is_retried(code: int, limit: int, expected: str) -> None:
    world = World(job(RETRYABLE, limit)).up()
    world.pod("wd-worker-1", failed(code))
    world.step()
    assert world.phase == expected


def test_without_a_limit_a_failed_pod_ends_the_job_with_a_reason() -> None:
    world = World(job()).up()
    world.pod("wd-worker-1", failed(3))
    world.settle()
    assert (world.phase, world.status["reason"]) == ("Failed", "PodFailed")
    assert world.status["message"] == "wd-worker-1 failed with code 3."


def test_a_collective_job_restarts_as_a_whole_after_its_pods_are_deleted() -> None:
    world = World(job(limit=1), slow=True).up()
    world.pod("wd-worker-1", failed())
    world.settle()
    assert world.pods() == ["wd-worker-0", "wd-worker-1"]
    assert (world.status["attempt"], world.status["restarts"], world.config_data) == (2, 1, None)
    world.later(5)
    world.reap()
    world.up()
    assert {pod["metadata"]["labels"]["batch.paddlepaddle.org/attempt"] for pod in world.of("Pod")} == {"2"}
    world.pod("wd-worker-0", failed())
    world.settle()
    assert (world.phase, world.status["reason"]) == ("Failed", "BackoffLimitExceeded")


def test_a_trainer_that_its_parameter_servers_can_miss_is_replaced_alone() -> None:
    world = World(job(limit=3, ps=1, intranet="Service")).up()
    world.pod("wd-worker-1", failed())
    world.settle()
    assert (world.pods(), world.status["reason"]) == (["wd-ps-0", "wd-worker-0"], "BackOff")
    world.later(2)
    world.up()
    assert (world.phase, world.status["attempt"], world.status["restarts"]) == ("Running", 1, 1)


def test_pods_that_fail_together_and_restart_together_count_once() -> None:
    world = World(job(limit=1)).up()
    world.all_pods(failed())
    world.step()
    assert (world.phase, world.status["restarts"]) == ("Pending", 1)


@pytest.mark.invariant("The controller counts each failure once, and before it deletes the pod.")
def test_a_failure_is_counted_once_however_often_it_is_observed() -> None:
    world = World(job(limit=3, ps=1, intranet="Service"), slow=True).up()
    world.pod("wd-worker-1", failed())
    counted = world.plan()
    world.job["status"] = counted.status
    world.settle()
    world.settle()
    assert world.status["restarts"] == 1


def pods_made(made: Plan) -> list[str]:
    return [action.name for action in made.actions if isinstance(action, Create) and action.kind == "Pod"]


def test_no_pod_of_an_attempt_is_made_while_one_of_the_attempt_before_is_left() -> None:
    world = World(job(limit=1), slow=True).up()
    world.pod("wd-worker-1", failed())
    world.settle()
    world.lose("wd-worker-0")
    world.later(60)
    assert (world.pods(), pods_made(world.plan())) == (["wd-worker-1"], [])
    world.reap()
    world.settle()
    assert world.pods() == ["wd-worker-0", "wd-worker-1"]


@pytest.mark.invariant("The controller counts each failure once, and before it deletes the pod.")
def test_both_of_two_evictions_in_one_second_are_counted_before_their_pods_go() -> None:
    world = World(job(limit=3, ps=1, intranet="Service")).up()
    for name in ("wd-worker-0", "wd-worker-1"):
        world.pod(name, {"phase": "Failed", "reason": "Evicted"})
        made = world.plan()
        assert made.status_first
        world.job["status"] = made.status
    assert len(world.status["counted"]) == 2


@pytest.mark.parametrize("reason", ["Evicted", "NodeLost", "Preempting", "UnexpectedAdmissionError"])
def test_what_a_node_does_to_a_pod_is_not_the_job_s_failure(reason: str) -> None:
    world = World(job()).up()
    world.pod("wd-worker-1", {"phase": "Failed", "reason": reason})
    world.settle()
    world.later(5)
    world.up()
    assert (world.phase, world.status["restarts"], world.status["attempt"]) == ("Running", 0, 2)


def test_the_first_rule_that_fits_decides() -> None:
    rules = (
        Rule(Verdict.FAIL, roles=frozenset({"ps"})),
        Rule(Verdict.RESTART_FREE, reasons=frozenset({"OOMKilled"})),
        Rule(Verdict.FAIL, exit_codes=(range(3, 4),)),
    )
    assert judge(Failure("p", "ps", 137, "OOMKilled"), rules, 0, 5) is Verdict.FAIL
    assert judge(Failure("p", "worker", 137, "OOMKilled"), rules, 9, 5) is Verdict.RESTART_FREE
    assert judge(Failure("p", "worker", 3), rules, 0, 5) is Verdict.FAIL
    assert judge(Failure("p", "worker", 4), rules, 4, 5) is Verdict.RESTART
    assert judge(Failure("p", "worker", 4), rules, 5, 5) is Verdict.FAIL


def test_pauses_grow_and_end_at_five_minutes() -> None:
    assert [pause(starts) for starts in (0, 1, 2, 3, 9, 30)] == [0, 1, 2, 4, 256, 300]


@pytest.mark.parametrize(("limit", "again", "ends"), [(3, 2, False), (3, 3, True), (0, 0, False), (0, 1, True)])
def test_containers_that_nodes_start_again_count_against_the_limit(limit: int, again: int, ends: bool) -> None:
    world = World(job(limit=limit)).up()
    world.pod("wd-worker-0", running(restartCount=again))
    world.settle()
    assert (world.phase == "Failed") is ends


# --- Success ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("policy", "pods", "expected"),
    [
        ({}, {"wd-worker-0": SUCCEEDED}, "Running"),
        ({}, {"wd-worker-0": SUCCEEDED, "wd-worker-1": SUCCEEDED}, "Completed"),
        ({"operator": "Any"}, {"wd-worker-1": SUCCEEDED}, "Completed"),
        ({"roles": ["ps", "worker"]}, {"wd-worker-0": SUCCEEDED, "wd-worker-1": SUCCEEDED}, "Running"),
        ({"roles": ["ps"]}, {"wd-ps-0": SUCCEEDED}, "Completed"),
    ],
)
def test_success_follows_the_success_policy(policy: dict[str, Any], pods: dict[str, Any], expected: str) -> None:
    world = World(job(ps=1, successPolicy=policy)).up()
    for name, status in pods.items():
        world.pod(name, status)
    world.settle()
    assert world.phase == expected


def test_a_job_of_parameter_servers_alone_is_done_when_they_are() -> None:
    world = World(paddle_job(ps=1)).up()
    world.all_pods(SUCCEEDED)
    world.settle()
    assert world.phase == "Completed"


# --- Time ------------------------------------------------------------------------------------------------------------
def test_a_job_that_runs_too_long_has_failed() -> None:
    world = World(job(runPolicy={"activeDeadlineSeconds": 60})).up()
    world.later(20)
    assert world.plan().requeue_after == 40
    world.later(40)
    world.settle()
    assert (world.phase, world.status["reason"], world.pods()) == ("Failed", "DeadlineExceeded", [])


def test_a_job_that_has_ended_is_deleted_after_its_time() -> None:
    world = World(job(runPolicy={"ttlSecondsAfterFinished": 30})).up()
    world.all_pods(SUCCEEDED)
    world.settle()
    assert (world.plan().requeue_after, world.job_is_gone) == (30, False)
    world.later(30)
    world.step()
    assert world.job_is_gone


def progress(world: World, value: str) -> None:
    world.change({"metadata": {"annotations": {"batch.paddlepaddle.org/progress": value}}})
    world.settle()


def test_a_stalled_job_restarts_up_to_the_limit_and_then_fails() -> None:
    world = World(job(runPolicy={"stallTimeoutSeconds": 60, "backoffLimit": 1})).up()
    world.later(50)
    progress(world, "step 1")
    world.later(50)
    assert world.plan().requeue_after == 10
    world.later(10)
    world.settle()
    assert (world.status["attempt"], world.status["restarts"]) == (2, 1)
    world.later(120)
    world.up()
    world.later(59)
    world.settle()
    assert world.phase == "Running"
    world.later(1)
    world.settle()
    assert (world.phase, world.status["reason"]) == ("Failed", "Stalled")


# --- Gang scheduling -------------------------------------------------------------------------------------------------
def test_pods_that_hold_nodes_for_others_that_find_none_give_them_back_and_try_again() -> None:
    world = World(job(schedulingPolicy={"timeoutSeconds": 60}))
    world.settle()
    world.pod("wd-worker-0", {"phase": "Pending"})
    world.settle()
    assert world.plan().requeue_after == 60
    world.later(60)
    world.settle()
    assert (world.pods(), world.status["releases"]) == ([], 1)
    world.later(59)
    world.settle()
    assert world.pods() == []
    world.later(1)
    world.up()
    assert (world.phase, "releases" in world.status) == ("Running", False)


def test_a_gang_of_which_nobody_holds_a_node_may_wait_for_ever() -> None:
    world = World(job(schedulingPolicy={"timeoutSeconds": 60}))
    world.settle()
    world.later(3600)
    world.settle()
    assert len(world.pods()) == 2


def test_0_seconds_let_a_gang_hold_its_nodes_for_ever() -> None:
    world = World(job(schedulingPolicy={"timeoutSeconds": 0}))
    world.settle()
    world.pod("wd-worker-0", {"phase": "Pending"})
    world.settle()
    world.later(3600)
    world.settle()
    assert len(world.pods()) == 2


# --- Elastic bounds --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("desired", "there"), [(1, 2), (3, 3), (9, 4)])
def test_workers_stay_within_their_bounds(desired: int, there: int) -> None:
    world = World(paddle_job(elastic=1, worker=role(desired, requests=2, limits=4)))
    world.settle()
    assert len(world.pods()) == there


def test_an_elastic_job_runs_with_as_few_workers_as_it_may() -> None:
    world = World(paddle_job(elastic=1, worker=role(3, requests=2, limits=4)))
    world.settle()
    world.pod("wd-worker-0", running())
    world.settle()
    assert world.phase == "Pending"
    world.pod("wd-worker-1", running())
    world.settle()
    assert world.phase == "Running"


# --- Waiting reasons -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("status", "reason", "text"),
    [
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available."}]},
            "Unschedulable",
            "wd-worker-0 finds no node: 0/1 nodes are available.",
        ),
        (
            {"containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}]},
            "ImagePull",
            "wd-worker-0: no such image",
        ),
        (
            {
                "containerStatuses": [
                    {"state": {"waiting": {"reason": "CreateContainerConfigError", "message": "no ConfigMap"}}}
                ]
            },
            None,
            None,
        ),
    ],
    ids=["no node", "no image", "waiting for the others"],
)
def test_the_status_has_the_reason_why_a_job_waits(
    status: dict[str, Any], reason: str | None, text: str | None
) -> None:
    world = World(job())
    world.settle()
    world.objects["Pod", "wd-worker-0"]["status"] = {"phase": "Pending", **status}
    world.settle()
    assert (world.status.get("reason"), world.status.get("message")) == (reason, text)


@pytest.mark.parametrize(
    ("message", "reason"),
    [('configmap "wd" not found', None), ('secret "login" not found', "ContainerConfig")],
    ids=["the job's own, which is there by now", "the user's own"],
)
def test_a_container_config_error_is_reported_unless_it_passes(message: str, reason: str | None) -> None:
    world = World(job())
    world.settle()
    waiting = {"waiting": {"reason": "CreateContainerConfigError", "message": message}}
    world.all_pods({"phase": "Pending", "containerStatuses": [{"state": waiting}]})
    world.settle()
    assert world.config_data is not None
    assert world.status.get("reason") == reason
