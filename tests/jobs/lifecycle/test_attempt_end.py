"""Decision whether an attempt is over, rule by rule."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from jobs.backends.base import AttemptView
from jobs.lifecycle import attempt_end
from jobs.lifecycle.attempt_end import Rule, Situation, decide
from jobs.lifecycle.observations import merge
from jobs.lifecycle.reasons import Reason, retries_left
from jobs.lifecycle.replica_facts import ReplicaFact, recovering
from jobs.lifecycle.state_machine import AttemptEnded
from jobs.lifecycle.states import JobState, ReplicaState
from jobs.messages import jobs as messages
from tests.jobs.lifecycle.replicas import GLOO, NOW, attempt, exited, job, killed, replica, spent
from tests.messages import mentions

SERVERS = (replica("pserver-0"), replica("pserver-1"))


def lost(name: str) -> ReplicaFact:
    return replica(name, state=ReplicaState.LOST)


# --- Rules one by one ------------------------------------------------------------------------------------------------
RUNS = attempt(replica("trainer-0"))
# For each rule: replicas to which it applies, the reason, and similar replicas to which it does not.
CASES: list[tuple[Rule, tuple[ReplicaFact, ...], Reason, tuple[ReplicaFact, ...]]] = [
    (
        attempt_end.all_lost,
        (lost("master-0"), lost("pserver-0"), lost("trainer-0")),
        Reason.LOST,
        (lost("master-0"), lost("pserver-0"), killed("trainer-0")),
    ),
    (
        attempt_end.training_completed,
        attempt(exited("trainer-0"), spent("trainer-1")),
        Reason.COMPLETED,
        attempt(exited("trainer-0"), exited("trainer-1", 1)),
    ),
    (
        attempt_end.values_lost,
        (replica("master-0"), exited("pserver-0", 76), replica("trainer-0")),
        Reason.VALUES_LOST,
        (replica("master-0"), exited("pserver-0", 75), exited("trainer-0", 76)),
    ),
    (
        attempt_end.platform_replica_lost,
        (replica("master-0"), spent("pserver-0"), replica("trainer-0")),
        Reason.REPLICA_LOST,
        (exited("master-0"), killed("pserver-0"), replica("trainer-0")),
    ),
    (
        attempt_end.script_failed,
        attempt(replica("trainer-0"), exited("trainer-1", 1)),
        Reason.USER_ERROR,
        attempt(spent("trainer-0"), exited("trainer-1", 75)),
    ),
    (
        attempt_end.too_few_trainers,
        attempt(spent("trainer-0"), spent("trainer-1")),
        Reason.KILLED,
        attempt(killed("trainer-0"), spent("trainer-1")),
    ),
]
CASES_TOGETHER: list[tuple[Rule, tuple[ReplicaFact, ...], Reason, tuple[ReplicaFact, ...]]] = [
    (
        attempt_end.all_trainers_succeeded,
        (*SERVERS, exited("trainer-0"), exited("trainer-1")),
        Reason.COMPLETED,
        (exited("pserver-0"), exited("trainer-0"), replica("trainer-1")),
    ),
    (
        attempt_end.one_failed,
        (*SERVERS, exited("trainer-0", 1), replica("trainer-1")),
        Reason.USER_ERROR,
        (*SERVERS, exited("trainer-0"), replica("trainer-1")),
    ),
]


@pytest.mark.parametrize(
    ("rule", "replicas", "reason", "similar", "meet_once"),
    [
        pytest.param(*case, meet_once, id=case[0].__name__)
        for cases, meet_once in ((CASES, False), (CASES_TOGETHER, True))
        for case in cases
    ],
)
def test_a_rule_applies_to_its_situation_and_to_no_similar_one(
    rule: Rule,
    replicas: tuple[ReplicaFact, ...],
    reason: Reason,
    similar: tuple[ReplicaFact, ...],
    meet_once: bool,
) -> None:
    present = job(together=meet_once)
    ended = rule(Situation.of(present, replicas))
    assert ended is not None and ended.reason is reason
    assert rule(Situation.of(present, similar)) is None
    assert rule(Situation.of(present, ())) is None


def test_every_rule_has_a_case() -> None:
    assert {*attempt_end.RULES, *attempt_end.RULES_TOGETHER} == {case[0] for case in (*CASES, *CASES_TOGETHER)}


@pytest.mark.parametrize("meet_once", [False, True])
def test_no_rule_applies_while_all_replicas_run(meet_once: bool) -> None:
    assert decide(job(together=meet_once), RUNS) is None


def test_the_first_rule_that_applies_decides() -> None:
    replicas = (spent("master-0"), exited("pserver-0", 76), exited("trainer-0", 1), spent("trainer-1"))
    situation = Situation.of(job(min_trainers=2), replicas)
    applicable = [rule for rule in attempt_end.RULES if rule(situation)]
    assert applicable == list(attempt_end.RULES[2:])
    assert decide(job(min_trainers=2), replicas) == attempt_end.values_lost(situation)


def test_a_situation_has_no_dismissed_replicas() -> None:
    dismissed = replace(killed("trainer-1"), dismissed=True)
    situation = Situation.of(job(), attempt(killed("trainer-0"), dismissed))
    assert situation.trainers == situation.recovering == (killed("trainer-0"),)
    assert dismissed not in situation.replicas


# --- Training --------------------------------------------------------------------------------------------------------
def test_a_trainer_that_comes_too_late_is_not_waited_for() -> None:
    late = replica("trainer-1", state=ReplicaState.STARTING, registered=False)
    ended = decide(job(), (exited("master-0"), replica("pserver-0"), exited("trainer-0"), late))
    assert ended == AttemptEnded(1, messages.TRAINED(trainers=messages.TRAINER_COUNT_ONE(count=1)), Reason.COMPLETED)


@pytest.mark.parametrize("seconds", [-1, 0, 5])
def test_a_trainer_that_registers_after_the_master_has_ended_is_not_waited_for(seconds: int) -> None:
    late = replica("trainer-1", since=NOW + timedelta(seconds=seconds))
    early = exited("trainer-0", since=NOW - timedelta(seconds=60))
    ended = decide(job(), (exited("master-0", finished=NOW), replica("pserver-0"), early, late))
    assert ended == AttemptEnded(1, messages.TRAINED(trainers=messages.TRAINER_COUNT_ONE(count=1)), Reason.COMPLETED)


def test_a_trainer_that_registered_before_is_waited_for_when_the_master_reports_first() -> None:
    early = [replica(f"trainer-{index}", since=NOW - timedelta(seconds=60)) for index in range(2)]
    early[0] = replace(early[0], state=ReplicaState.EXITED, code=0)
    assert decide(job(), (exited("master-0", finished=NOW), replica("pserver-0"), *early)) is None


def test_in_a_very_short_job_all_trainers_are_waited_for() -> None:
    quick = [replica(f"trainer-{index}", since=NOW - timedelta(seconds=1)) for index in range(2)]
    quick[0] = replace(quick[0], state=ReplicaState.EXITED, code=0)
    assert decide(job(), (exited("master-0", finished=NOW), replica("pserver-0"), *quick)) is None


def test_all_trainers_done_is_the_end() -> None:
    ended = decide(job(), attempt(exited("trainer-0"), exited("trainer-1")))
    assert ended == AttemptEnded(1, messages.TRAINED(trainers=messages.TRAINER_COUNT(count=2)), Reason.COMPLETED)


def test_a_killed_trainer_is_named_when_the_rest_completes() -> None:
    ended = decide(job(), attempt(exited("trainer-0"), killed("trainer-1")))
    assert ended is not None
    assert ended.reason is Reason.COMPLETED
    assert ended.why == messages.TRAINED_REDUCED(
        left=1, all=2, endings=messages.ENDING(replica="trainer-1", ending=messages.ENDED_BY(signal="SIGKILL"))
    )


@pytest.mark.parametrize("standby", [replica("master-1"), killed("master-1")])
def test_a_lost_master_is_not_missed_while_a_standby_runs_or_restarts(standby: ReplicaFact) -> None:
    lost = replace(killed("master-0"), restarts=3)
    assert decide(job(), (lost, standby, replica("pserver-0"), replica("trainer-0"))) is None


def test_a_master_that_exits_with_an_error_is_not_replaced_by_the_standby() -> None:
    ended = decide(job(), (exited("master-0", 1), replica("master-1"), replica("pserver-0"), replica("trainer-0")))
    assert ended is not None
    assert ended.reason is Reason.REPLICA_LOST


def test_a_master_that_is_killed_too_often_is_missed() -> None:
    lost = replace(killed("master-0"), restarts=3)
    ended = decide(job(), (lost, replica("pserver-0"), replica("trainer-0")))
    assert ended is not None and ended.reason is Reason.REPLICA_LOST


def test_the_last_trainer_killed_is_the_end() -> None:
    ended = decide(job(), attempt(spent("trainer-0")))
    assert ended is not None
    assert ended.reason is Reason.KILLED
    assert ended.why == messages.TOO_FEW_TRAINERS_LEFT(
        left=0,
        all=1,
        needed=1,
        endings=messages.ENDING(replica="trainer-0", ending=messages.ENDED_BY(signal="SIGKILL")),
    )


def test_fewer_than_the_minimum_is_the_end() -> None:
    ended = decide(job(min_trainers=2), attempt(replica("trainer-0"), spent("trainer-1")))
    assert ended is not None and ended.reason is Reason.KILLED


def test_a_script_that_fails_ends_the_attempt_with_the_agents_message() -> None:
    failed = exited("trainer-0", 3, why="exited with code 3: ValueError: no in train.py line 4")
    ended = decide(job(), attempt(failed, replica("trainer-1")))
    assert ended == AttemptEnded(
        1, "trainer-0 exited with code 3: ValueError: no in train.py line 4.", Reason.USER_ERROR
    )


def test_a_memory_error_is_reported_as_one() -> None:
    ended = decide(job(), attempt(exited("trainer-0", 1, out_of_memory=True)))
    assert ended is not None
    assert (ended.reason, ended.why) == (Reason.OUT_OF_MEMORY, "trainer-0 ran out of memory.")


def test_a_lost_server_is_the_cause_before_the_trainers_that_failed_with_it() -> None:
    ended = decide(job(), (replica("master-0"), spent("pserver-0"), exited("trainer-0", 1)))
    assert ended is not None
    assert ended.reason is Reason.REPLICA_LOST
    assert ended.why == messages.BEFORE_COMPLETION(
        ending=messages.ENDING(replica="pserver-0", ending=messages.ENDED_BY(signal="SIGKILL"))
    )


def test_a_server_whose_values_are_lost_ends_the_attempt_and_another_follows() -> None:
    ended = decide(job(), (replica("master-0"), exited("pserver-0", 76), exited("trainer-0", 75)))
    assert ended == AttemptEnded(1, messages.VALUES_NOT_RESTORED(name="pserver-0"), Reason.VALUES_LOST)
    assert retries_left(Reason.VALUES_LOST, 0, {}) == 3


def test_a_master_that_ends_after_the_trainers_are_done_is_no_loss() -> None:
    ended = decide(job(), (exited("master-0"), replica("pserver-0"), exited("trainer-0")))
    assert ended is not None and ended.reason is Reason.COMPLETED


def test_the_masters_success_may_be_reported_before_the_trainers() -> None:
    assert decide(job(), (exited("master-0"), replica("pserver-0"), exited("trainer-0"), replica("trainer-1"))) is None


def test_processes_that_are_all_gone_are_lost_together() -> None:
    gone = merge(attempt(replica("trainer-0")), AttemptView(gone=True))
    ended = decide(job(), gone)
    assert ended is not None and ended.reason is Reason.LOST


def test_a_script_that_never_calls_init_completes_with_a_message() -> None:
    ended = decide(job(JobState.REGISTERING), attempt(exited("trainer-0", registered=False)))
    assert ended is not None
    assert ended.reason is Reason.COMPLETED
    assert mentions(ended.why, messages.INIT_NEVER_CALLED)


# --- Processes that find one another once, when they start -----------------------------------------------------------
def together(*replicas: ReplicaFact, state: JobState = JobState.RUNNING) -> AttemptEnded | None:
    return decide(job(state, together=True), replicas)


def test_a_fleet_ends_with_its_trainers_whatever_state_its_servers_have() -> None:
    assert together(*SERVERS, exited("trainer-0"), replica("trainer-1")) is None
    over = together(*SERVERS, exited("trainer-0"), exited("trainer-1"))
    assert over == AttemptEnded(1, messages.TRAINED(trainers=messages.TRAINER_COUNT(count=2)), Reason.COMPLETED)


@pytest.mark.parametrize("name", ["pserver-0", "trainer-0"])
def test_none_that_meet_once_is_started_again(name: str) -> None:
    present = job(together=True)
    assert recovering(present, [killed(name), replica("trainer-1")]) == []
    end = together(killed(name), replica("trainer-1"))
    assert end is not None
    assert (end.reason, mentions(end.why, messages.ENDED_OTHERS_CANNOT_CONTINUE)) == (Reason.KILLED, True)


def test_the_first_that_failed_is_the_cause_and_the_others_follow() -> None:
    later = NOW + timedelta(seconds=1)
    follows = exited("trainer-0", 1, why="exited with code 1: ConnectionError", finished=later)
    cause = exited("trainer-1", None, signal=9, why="was terminated by signal 9 (SIGKILL)", finished=NOW)
    end = together(follows, cause)
    assert end is not None
    assert end.why == messages.ENDED_OTHERS_CANNOT_CONTINUE(
        ending=messages.ENDING(replica="trainer-1", ending="was terminated by signal 9 (SIGKILL)")
    )


def test_a_process_that_lost_its_peer_is_not_the_cause_although_it_ended_first() -> None:
    follows = exited("trainer-0", 1, why=GLOO, finished=NOW)
    cause = exited("trainer-1", 1, why="exited with code 1: KeyError: 'rate'", finished=NOW + timedelta(seconds=1))
    end = together(follows, cause)
    assert end is not None
    assert end.why == "trainer-1 exited with code 1: KeyError: 'rate'."


def test_a_server_whose_script_fails_is_the_user_s_error() -> None:
    end = together(exited("pserver-0", 1), replica("pserver-1"), replica("trainer-0"))
    assert end is not None
    assert end.reason is Reason.USER_ERROR


def test_a_memory_error_is_reported_for_processes_that_meet_once() -> None:
    end = together(exited("trainer-0", None, signal=9, out_of_memory=True), replica("trainer-1"))
    assert end is not None
    assert end.reason is Reason.OUT_OF_MEMORY
