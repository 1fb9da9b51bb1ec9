"""Events of a job from the observations of its attempt."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from jobs.backends.base import AttemptView, Phase, ReplicaView
from jobs.lifecycle.holds import Held
from jobs.lifecycle.observations import Facts, Policy, events_from, merge
from jobs.lifecycle.reasons import Reason
from jobs.lifecycle.replica_facts import ReplicaFact
from jobs.lifecycle.state_machine import AllRegistered, AttemptEnded, CancelRequested, Drained, JobView, StrengthChanged
from jobs.lifecycle.states import JobState, ReplicaState
from jobs.lifecycle.wording import arrival
from jobs.messages import holds as hold_messages
from jobs.messages import jobs as messages
from tests.jobs.lifecycle.replicas import GLOO, NOW, attempt, exited, job, killed, replica, spent
from tests.messages import mentions

POLICY = Policy(registration=timedelta(seconds=60), drain=timedelta(seconds=10))


def events(about: JobView, *replicas: ReplicaFact, seconds: float = 1, **facts: object) -> list[object]:
    known = Facts(replicas=replicas, **facts)
    return list(events_from(about, known, NOW + timedelta(seconds=seconds), POLICY))


def test_a_running_job_whose_replicas_run_has_no_events() -> None:
    assert (
        events(job(why=messages.TRAINING(trainers=messages.TRAINER_COUNT_ONE(count=1))), *attempt(replica("trainer-0")))
        == []
    )


def test_joining_trainers_are_reported() -> None:
    newcomers = [replica(f"trainer-{index}", state=ReplicaState.WAITING, registered=False) for index in (1, 2)]
    [event] = events(job(), *attempt(replica("trainer-0"), *newcomers))
    assert event == StrengthChanged(
        1, messages.TRAINING_PARTIAL(left=1, all=3, endings=messages.JOINING(replicas="trainer-1 and trainer-2"))
    )


def test_a_dismissed_trainer_is_neither_lost_nor_a_failure() -> None:
    gone = exited("trainer-1", 1, dismissed=True), killed("trainer-2"), exited("trainer-3", 75, dismissed=True)
    here = attempt(replica("trainer-0"), gone[0], replace(gone[1], dismissed=True), gone[2])
    [event] = events(job(min_trainers=1), *here)
    assert event == StrengthChanged(1, messages.TRAINING(trainers=messages.TRAINER_COUNT_ONE(count=1)))


def test_the_view_of_an_earlier_start_does_not_apply_to_the_present_one() -> None:
    before = AttemptView(False, (ReplicaView("trainer-0", Phase.EXITED, code=0),))
    [fact] = merge([replica("trainer-0", start_number=2)], before)
    assert not fact.ended


def test_a_trainer_that_is_killed_is_started_again() -> None:
    [event] = events(job(), *attempt(replica("trainer-0"), killed("trainer-1")))
    assert event == StrengthChanged(
        1,
        messages.TRAINING_REDUCED(
            left=1,
            all=2,
            endings=messages.RESTARTING(
                ending=messages.ENDING(replica="trainer-1", ending=messages.ENDED_BY(signal="SIGKILL"))
            ),
        ),
    )


def test_a_master_that_is_killed_is_started_again() -> None:
    [event] = events(job(), killed("master-0"), replica("pserver-0"), replica("trainer-0"))
    assert event == StrengthChanged(
        1,
        messages.TRAINING_REDUCED_ONE(
            left=1,
            all=1,
            endings=messages.RESTARTING(
                ending=messages.ENDING(replica="master-0", ending=messages.ENDED_BY(signal="SIGKILL"))
            ),
        ),
    )


def test_a_job_goes_on_with_one_trainer_less_and_reports_it() -> None:
    [event] = events(job(), *attempt(replica("trainer-0"), spent("trainer-1")))
    assert event == StrengthChanged(
        1,
        messages.TRAINING_REDUCED(
            left=1, all=2, endings=messages.ENDING(replica="trainer-1", ending=messages.ENDED_BY(signal="SIGKILL"))
        ),
    )


def test_code_75_is_no_failure_of_the_script() -> None:
    [event] = events(job(), *attempt(replica("trainer-0"), exited("trainer-1", 75)))
    assert isinstance(event, StrengthChanged)


def test_the_attempt_runs_once_all_have_registered() -> None:
    [event] = events(job(JobState.REGISTERING), *attempt(replica("trainer-0")))
    assert event == AllRegistered(1, messages.TRAINING(trainers=messages.TRAINER_COUNT_ONE(count=1)))


def test_a_quick_script_passes_through_running() -> None:
    first, *_ = events(job(JobState.REGISTERING), *attempt(exited("trainer-0")))
    assert isinstance(first, AllRegistered)


def test_a_trainer_lost_while_registering_does_not_hold_the_others_up() -> None:
    [event] = events(job(JobState.REGISTERING), *attempt(replica("trainer-0"), killed("trainer-1")))
    assert isinstance(event, AllRegistered)


def test_replicas_that_never_register_are_named() -> None:
    silent = replica("trainer-1", state=ReplicaState.STARTING, registered=False)
    [event] = events(job(JobState.REGISTERING), *attempt(replica("trainer-0"), silent), seconds=60)
    assert isinstance(event, AttemptEnded)
    assert event.reason is Reason.REGISTRATION_TIMEOUT
    assert event.why.startswith("trainer-1 did not register within 1 minute. Call dist.init()")


@pytest.mark.parametrize("state", [JobState.BUILDING, JobState.LAUNCHING, JobState.RUNNING])
def test_the_timeout_counts_from_admission(state: JobState) -> None:
    first, *_ = events(job(state, timeout=timedelta(seconds=90)), seconds=90)
    assert first == AttemptEnded(1, messages.TIMEOUT_REACHED(length=messages.SECOND_COUNT(count=90)), Reason.DEADLINE)


def test_a_cancellation_request_comes_first() -> None:
    first, *_ = events(job(), *attempt(exited("trainer-0")), cancelled_by="alice")
    assert first == CancelRequested(1, messages.CANCELLED_BY(name="alice"))


# --- Draining --------------------------------------------------------------------------------------------------------
def drained(*replicas: ReplicaFact, view: AttemptView | None, seconds: float) -> bool:
    stopping = job(JobState.STOPPING, reason=Reason.COMPLETED)
    return events(stopping, *replicas, view=view, seconds=seconds) == [Drained(1)]


def seen(phase: Phase) -> AttemptView:
    return AttemptView(gone=False, replicas=(ReplicaView("trainer-0", phase, code=0),))


def test_the_end_waits_while_a_process_runs() -> None:
    assert not drained(exited("trainer-0"), view=seen(Phase.RUNNING), seconds=1000)


def test_the_end_waits_for_the_agents_last_report() -> None:
    assert not drained(replica("trainer-0"), view=seen(Phase.EXITED), seconds=9)


def test_the_end_does_not_wait_forever_for_the_last_report() -> None:
    assert drained(replica("trainer-0"), view=seen(Phase.EXITED), seconds=10)


def test_the_end_comes_at_once_when_all_agents_have_reported() -> None:
    assert drained(exited("trainer-0"), view=seen(Phase.EXITED), seconds=0)


def test_no_last_report_is_awaited_from_an_agent_that_is_gone() -> None:
    assert drained(replica("trainer-0"), view=seen(Phase.LOST), seconds=0)


def test_an_attempt_that_was_never_launched_is_drained() -> None:
    assert drained(replica("trainer-0", state=ReplicaState.WAITING), view=AttemptView(gone=True), seconds=0)


def test_nothing_is_drained_while_the_backend_does_not_answer() -> None:
    assert not drained(exited("trainer-0"), view=None, seconds=1000)


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ([], messages.REPLICA_REGISTERED(replica="trainer-0")),
        (["exited"], messages.REPLICA_REGISTERED(replica="trainer-0")),
        (["exited", "restarted"], messages.REPLICA_RECOVERED(replica="trainer-0", length="3.2")),
        (["restarted"], messages.REPLICA_RECOVERED(replica="trainer-0", length="3.2")),
        (["rehearsal", "exited", "restarted"], messages.REHEARSAL_KILL_RECOVERED(replica="trainer-0", length="3.2")),
    ],
)
def test_the_message_of_an_arrival_names_the_loss_before_it(kinds: list[str], expected: str) -> None:
    losses = [(NOW + timedelta(seconds=number), kind) for number, kind in enumerate(kinds)]
    assert arrival("trainer-0", losses, NOW + timedelta(seconds=3.2)) == expected


# --- Processes that find one another once, when they start -----------------------------------------------------------
@pytest.mark.parametrize(("seconds", "ended"), [(0, False), (4.9, False), (5, True)])
def test_the_cause_of_a_lost_peer_is_waited_for_a_while(seconds: float, ended: bool) -> None:
    present = job(JobState.RUNNING, together=True)
    facts = Facts(replicas=(exited("trainer-0", 1, why=GLOO, finished=NOW), replica("trainer-1")))
    events = list(events_from(present, facts, NOW + timedelta(seconds=seconds), POLICY))
    assert any(isinstance(event, AttemptEnded) for event in events) is ended


def test_no_cause_is_waited_for_where_all_have_ended_or_the_error_is_the_scripts_own() -> None:
    present = job(JobState.RUNNING, together=True)
    everyone = [exited(f"trainer-{index}", 1, why=GLOO, finished=NOW) for index in range(2)]
    own = [exited("trainer-0", 1, why="exited with code 1: KeyError", finished=NOW), replica("trainer-1")]
    for replicas in (everyone, own):
        events = list(events_from(present, Facts(replicas=tuple(replicas)), NOW, POLICY))
        assert any(isinstance(event, AttemptEnded) for event in events)


def test_the_message_for_trainers_whose_servers_never_listen_names_the_log() -> None:
    waiting = replica("trainer-0", state=ReplicaState.STARTING, registered=False)
    [end] = events(
        job(JobState.REGISTERING, together=True), replica("pserver-0"), replica("pserver-1"), waiting, seconds=61
    )
    assert mentions(end.why, messages.TRAINERS_WAIT_FOR_PSERVERS)


# --- Holds -----------------------------------------------------------------------------------------------------------
def held(name: str, seconds: int = 900, **fields: object) -> ReplicaFact:
    return replica(name, held=Held("ValueError", seconds, NOW + timedelta(seconds=seconds)), **fields)


def test_a_held_replica_is_the_message_of_the_job() -> None:
    [event] = events(job(), *attempt(held("trainer-0"), replica("trainer-1")), stalled="No step ended.")
    assert event == StrengthChanged(
        1, hold_messages.HELD(replica="trainer-0", exception="ValueError", length=messages.MINUTE_COUNT(count=15))
    )


def test_several_held_replicas_are_one_message() -> None:
    [event] = events(job(), *attempt(held("trainer-0"), held("trainer-1")))
    assert event == StrengthChanged(1, hold_messages.HELD_SEVERAL(replicas="trainer-0 and trainer-1"))


def test_a_hold_that_nobody_ended_is_over_after_its_time() -> None:
    [event] = events(job(), *attempt(held("trainer-0", 60)), seconds=90)
    assert event == StrengthChanged(1, messages.TRAINING(trainers=messages.TRAINER_COUNT_ONE(count=1)))


def test_a_replica_that_is_held_before_it_registers_does_not_end_the_attempt() -> None:
    registering = attempt(held("trainer-0", state=ReplicaState.STARTING, registered=False), replica("trainer-1"))
    [event] = events(job(JobState.REGISTERING), *registering, seconds=100)
    assert isinstance(event, StrengthChanged)


def test_the_timeout_comes_before_a_hold() -> None:
    first, *_ = events(job(timeout=timedelta(seconds=90)), *attempt(held("trainer-0")), seconds=90)
    assert isinstance(first, AttemptEnded)
    assert first.reason is Reason.DEADLINE


@pytest.mark.parametrize(
    ("seconds", "until", "length", "end"),
    [(900, 900, 900, 900), (10**9, 10**9, 14_400, 14_400), (60, -5, 60, 0), (-3, 10**9, 1, 1)],
)
def test_a_reported_hold_is_bounded(seconds: int, until: int, length: int, end: int) -> None:
    found = Held.of("Val\nueError" + "x" * 500, seconds, NOW.timestamp() + until, NOW)
    assert (found.seconds, found.until, len(found.exception)) == (length, NOW + timedelta(seconds=end), 100)
    assert found.exception.startswith("Val?ueError")
    assert Held.from_json(found.to_json()) == found
