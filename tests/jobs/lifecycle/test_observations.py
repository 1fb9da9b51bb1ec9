"""Events of a job from the observations of its attempt."""

from __future__ import annotations

import signal
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from jobs.backends.base import AttemptView, Phase, ReplicaView
from jobs.lifecycle.observations import Facts, Policy, ReplicaFact, events_from, merge, recovering, verdict
from jobs.lifecycle.reasons import Reason, retries_left
from jobs.lifecycle.state_machine import AllRegistered, AttemptEnded, CancelRequested, Drained, JobView, StrengthChanged
from jobs.lifecycle.states import JobState, ReplicaState
from jobs.lifecycle.wording import arrival
from jobs.messages import jobs as messages
from tests.messages import mentions

NOW = datetime(2026, 3, 1, tzinfo=UTC)
POLICY = Policy(registration=timedelta(seconds=60), drain=timedelta(seconds=10))


def job(state: JobState = JobState.RUNNING, **fields: object) -> JobView:
    view = JobView(id="j", state=state, attempt=1, changed=NOW, admitted=NOW)
    return replace(view, **fields)


def replica(name: str, **fields: object) -> ReplicaFact:
    working = ReplicaFact(name, name.split("-")[0], ReplicaState.REGISTERED, registered=True)
    return replace(working, **fields)


def exited(name: str, code: int | None = 0, **fields: object) -> ReplicaFact:
    return replica(name, state=ReplicaState.EXITED, code=code, flushed=True, **fields)


def killed(name: str, number: int = 9) -> ReplicaFact:
    return exited(name, None, signal=number)


def spent(name: str) -> ReplicaFact:
    """Return a killed replica without restarts left."""
    return replace(killed(name), restarts=3)


def attempt(*trainers: ReplicaFact) -> tuple[ReplicaFact, ...]:
    return (replica("master-0"), replica("pserver-0"), *trainers)


def events(about: JobView, *replicas: ReplicaFact, seconds: float = 1, **facts: object) -> list[object]:
    known = Facts(replicas=replicas, **facts)
    return list(events_from(about, known, NOW + timedelta(seconds=seconds), POLICY))


def test_a_running_job_whose_replicas_run_has_no_events() -> None:
    assert events(job(why="Training with 1 trainer."), *attempt(replica("trainer-0"))) == []


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
    assert event == StrengthChanged(1, "Training with 1 trainer.")


def test_a_trainer_that_comes_too_late_is_not_waited_for() -> None:
    late = replica("trainer-1", state=ReplicaState.STARTING, registered=False)
    ended = verdict(job(), (exited("master-0"), replica("pserver-0"), exited("trainer-0"), late))
    assert ended == AttemptEnded(1, "Trained with 1 trainer.", Reason.COMPLETED)


@pytest.mark.parametrize("seconds", [-1, 0, 5])
def test_a_trainer_that_registers_after_the_master_has_ended_is_not_waited_for(seconds: int) -> None:
    late = replica("trainer-1", since=NOW + timedelta(seconds=seconds))
    early = exited("trainer-0", since=NOW - timedelta(seconds=60))
    ended = verdict(job(), (exited("master-0", finished=NOW), replica("pserver-0"), early, late))
    assert ended == AttemptEnded(1, "Trained with 1 trainer.", Reason.COMPLETED)


def test_a_trainer_that_registered_before_is_waited_for_when_the_master_reports_first() -> None:
    early = [replica(f"trainer-{index}", since=NOW - timedelta(seconds=60)) for index in range(2)]
    early[0] = replace(early[0], state=ReplicaState.EXITED, code=0)
    assert verdict(job(), (exited("master-0", finished=NOW), replica("pserver-0"), *early)) is None


def test_in_a_very_short_job_all_trainers_are_waited_for() -> None:
    quick = [replica(f"trainer-{index}", since=NOW - timedelta(seconds=1)) for index in range(2)]
    quick[0] = replace(quick[0], state=ReplicaState.EXITED, code=0)
    assert verdict(job(), (exited("master-0", finished=NOW), replica("pserver-0"), *quick)) is None


def test_the_view_of_an_earlier_start_does_not_apply_to_the_present_one() -> None:
    before = AttemptView(False, (ReplicaView("trainer-0", Phase.EXITED, code=0),))
    [fact] = merge([replica("trainer-0", start_number=2)], before)
    assert not fact.ended


def test_all_trainers_done_is_the_end() -> None:
    ended = verdict(job(), attempt(exited("trainer-0"), exited("trainer-1")))
    assert ended == AttemptEnded(1, "Trained with 2 trainers.", Reason.COMPLETED)


def test_a_killed_trainer_is_named_when_the_rest_completes() -> None:
    ended = verdict(job(), attempt(exited("trainer-0"), killed("trainer-1")))
    assert ended is not None
    assert ended.reason is Reason.COMPLETED
    assert ended.why == messages.TRAINED_REDUCED(left=1, all=2, endings="trainer-1 was terminated by SIGKILL")


def test_a_trainer_that_is_killed_is_started_again() -> None:
    [event] = events(job(), *attempt(replica("trainer-0"), killed("trainer-1")))
    assert event == StrengthChanged(
        1,
        messages.TRAINING_REDUCED(
            left=1, all=2, endings=messages.RESTARTING(ending="trainer-1 was terminated by SIGKILL")
        ),
    )


def test_a_master_that_is_killed_is_started_again() -> None:
    [event] = events(job(), killed("master-0"), replica("pserver-0"), replica("trainer-0"))
    assert event == StrengthChanged(
        1,
        messages.TRAINING_REDUCED_ONE(
            left=1, all=1, endings=messages.RESTARTING(ending="master-0 was terminated by SIGKILL")
        ),
    )


@pytest.mark.parametrize("standby", [replica("master-1"), killed("master-1")])
def test_a_lost_master_is_not_missed_while_a_standby_runs_or_restarts(standby: ReplicaFact) -> None:
    lost = replace(killed("master-0"), restarts=3)
    assert verdict(job(), (lost, standby, replica("pserver-0"), replica("trainer-0"))) is None


def test_a_master_that_exits_with_an_error_is_not_replaced_by_the_standby() -> None:
    ended = verdict(job(), (exited("master-0", 1), replica("master-1"), replica("pserver-0"), replica("trainer-0")))
    assert ended is not None
    assert ended.reason is Reason.REPLICA_LOST


def test_a_master_that_is_killed_too_often_is_missed() -> None:
    lost = replace(killed("master-0"), restarts=3)
    ended = verdict(job(), (lost, replica("pserver-0"), replica("trainer-0")))
    assert ended is not None and ended.reason is Reason.REPLICA_LOST


@pytest.mark.parametrize("state", [state for state in JobState if state is not JobState.RUNNING])
def test_no_replica_is_started_again_unless_the_job_runs(state: JobState) -> None:
    assert recovering(job(state), attempt(replica("trainer-0"), killed("trainer-1"))) == []


@pytest.mark.parametrize(
    ("lost", "again"),
    [
        (killed("trainer-1"), True),
        (exited("trainer-1", 75), True),
        (replica("trainer-1", state=ReplicaState.LOST), True),
        (killed("master-0"), True),
        (replace(killed("trainer-1"), restarts=2), True),
        (replace(killed("trainer-1"), restarts=3), False),
        (replace(killed("trainer-1"), out_of_memory=True), False),
        (replace(killed("trainer-1"), dismissed=True), False),
        (killed("trainer-1", signal.SIGXCPU), False),
        (exited("trainer-1", 1), False),
        (exited("master-0", 0), False),
        (killed("pserver-0"), True),
        (exited("pserver-0", 76), False),
    ],
    ids=lambda value: f"{value.name} {value.state} {value.signal or value.code}" if not isinstance(value, bool) else "",
)
def test_which_replicas_are_started_again(lost: ReplicaFact, again: bool) -> None:
    assert recovering(job(), (replica("trainer-0"), lost)) == ([lost] if again else [])


def test_no_trainer_is_started_again_once_one_is_done() -> None:
    assert recovering(job(), attempt(exited("trainer-0"), killed("trainer-1"))) == []


def test_a_job_goes_on_with_one_trainer_less_and_reports_it() -> None:
    [event] = events(job(), *attempt(replica("trainer-0"), spent("trainer-1")))
    assert event == StrengthChanged(
        1, messages.TRAINING_REDUCED(left=1, all=2, endings="trainer-1 was terminated by SIGKILL")
    )


def test_the_last_trainer_killed_is_the_end() -> None:
    ended = verdict(job(), attempt(spent("trainer-0")))
    assert ended is not None
    assert ended.reason is Reason.KILLED
    assert ended.why == messages.TOO_FEW_TRAINERS_LEFT(
        left=0, all=1, needed=1, endings="trainer-0 was terminated by SIGKILL"
    )


def test_fewer_than_the_minimum_is_the_end() -> None:
    ended = verdict(job(min_trainers=2), attempt(replica("trainer-0"), spent("trainer-1")))
    assert ended is not None and ended.reason is Reason.KILLED


def test_a_script_that_fails_ends_the_attempt_with_the_agents_message() -> None:
    failed = exited("trainer-0", 3, why="exited with code 3: ValueError: no in train.py line 4")
    ended = verdict(job(), attempt(failed, replica("trainer-1")))
    assert ended == AttemptEnded(
        1, "trainer-0 exited with code 3: ValueError: no in train.py line 4.", Reason.USER_ERROR
    )


def test_code_75_is_no_failure_of_the_script() -> None:
    [event] = events(job(), *attempt(replica("trainer-0"), exited("trainer-1", 75)))
    assert isinstance(event, StrengthChanged)


def test_a_memory_error_is_reported_as_one() -> None:
    ended = verdict(job(), attempt(exited("trainer-0", 1, out_of_memory=True)))
    assert ended is not None
    assert (ended.reason, ended.why) == (Reason.OUT_OF_MEMORY, "trainer-0 ran out of memory.")


def test_a_lost_server_is_the_cause_before_the_trainers_that_failed_with_it() -> None:
    ended = verdict(job(), (replica("master-0"), spent("pserver-0"), exited("trainer-0", 1)))
    assert ended is not None
    assert ended.reason is Reason.REPLICA_LOST
    assert ended.why == messages.BEFORE_COMPLETION(ending="pserver-0 was terminated by SIGKILL")


def test_a_server_whose_values_are_lost_ends_the_attempt_and_another_follows() -> None:
    ended = verdict(job(), (replica("master-0"), exited("pserver-0", 76), exited("trainer-0", 75)))
    assert ended == AttemptEnded(1, messages.VALUES_NOT_RESTORED(name="pserver-0"), Reason.VALUES_LOST)
    assert retries_left(Reason.VALUES_LOST, 0, {}) == 3


def test_a_master_that_ends_after_the_trainers_are_done_is_no_loss() -> None:
    ended = verdict(job(), (exited("master-0"), replica("pserver-0"), exited("trainer-0")))
    assert ended is not None and ended.reason is Reason.COMPLETED


def test_the_masters_success_may_be_reported_before_the_trainers() -> None:
    assert verdict(job(), (exited("master-0"), replica("pserver-0"), exited("trainer-0"), replica("trainer-1"))) is None


def test_processes_that_are_all_gone_are_lost_together() -> None:
    gone = merge(attempt(replica("trainer-0")), AttemptView(gone=True))
    ended = verdict(job(), gone)
    assert ended is not None and ended.reason is Reason.LOST


def test_a_script_that_never_calls_init_completes_with_a_message() -> None:
    ended = verdict(job(JobState.REGISTERING), attempt(exited("trainer-0", registered=False)))
    assert ended is not None
    assert ended.reason is Reason.COMPLETED
    assert mentions(ended.why, messages.INIT_NEVER_CALLED)


def test_the_attempt_runs_once_all_have_registered() -> None:
    [event] = events(job(JobState.REGISTERING), *attempt(replica("trainer-0")))
    assert event == AllRegistered(1, "Training with 1 trainer.")


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
    assert first == CancelRequested(1, "Cancelled by alice.")


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
        ([], "trainer-0 has registered."),
        (["exited"], "trainer-0 has registered."),
        (["exited", "restarted"], messages.REPLICA_RECOVERED(replica="trainer-0", length="3.2")),
        (["restarted"], messages.REPLICA_RECOVERED(replica="trainer-0", length="3.2")),
        (["rehearsal", "exited", "restarted"], messages.REHEARSAL_KILL_RECOVERED(replica="trainer-0", length="3.2")),
    ],
)
def test_the_message_of_an_arrival_names_the_loss_before_it(kinds: list[str], expected: str) -> None:
    losses = [(NOW + timedelta(seconds=number), kind) for number, kind in enumerate(kinds)]
    assert arrival("trainer-0", losses, NOW + timedelta(seconds=3.2)) == expected


# --- Processes that find one another once, when they start -----------------------------------------------------------
def together(*replicas: ReplicaFact, state: JobState = JobState.RUNNING) -> AttemptEnded | None:
    return verdict(job(state, together=True), replicas)


FLEET = (replica("pserver-0"), replica("pserver-1"))


def test_a_fleet_ends_with_its_trainers_whatever_state_its_servers_have() -> None:
    assert together(*FLEET, exited("trainer-0"), replica("trainer-1")) is None
    over = together(*FLEET, exited("trainer-0"), exited("trainer-1"))
    assert over == AttemptEnded(1, "Trained with 2 trainers.", Reason.COMPLETED)


@pytest.mark.parametrize("name", ["pserver-0", "trainer-0"])
def test_none_that_meet_once_is_started_again(name: str) -> None:
    present = job(together=True)
    assert recovering(present, [killed(name), replica("trainer-1")]) == []
    end = together(killed(name), replica("trainer-1"))
    assert end is not None
    assert (end.reason, end.why.endswith("the other processes cannot continue without it.")) == (Reason.KILLED, True)


def test_the_first_that_failed_is_the_cause_and_the_others_follow() -> None:
    later = NOW + timedelta(seconds=1)
    follows = exited("trainer-0", 1, why="exited with code 1: ConnectionError", finished=later)
    cause = exited("trainer-1", None, signal=9, why="was terminated by signal 9 (SIGKILL)", finished=NOW)
    end = together(follows, cause)
    assert end is not None
    assert end.why == messages.ENDED_OTHERS_CANNOT_CONTINUE(ending="trainer-1 was terminated by signal 9 (SIGKILL)")


GLOO = "exited with code 1: RuntimeError: [/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer"


def test_a_process_that_lost_its_peer_is_not_the_cause_although_it_ended_first() -> None:
    follows = exited("trainer-0", 1, why=GLOO, finished=NOW)
    cause = exited("trainer-1", 1, why="exited with code 1: KeyError: 'rate'", finished=NOW + timedelta(seconds=1))
    end = together(follows, cause)
    assert end is not None
    assert end.why == "trainer-1 exited with code 1: KeyError: 'rate'."


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


def test_a_server_whose_script_fails_is_the_user_s_error() -> None:
    end = together(exited("pserver-0", 1), replica("pserver-1"), replica("trainer-0"))
    assert end is not None
    assert end.reason is Reason.USER_ERROR


def test_a_memory_error_is_reported_for_processes_that_meet_once() -> None:
    end = together(exited("trainer-0", None, signal=9, out_of_memory=True), replica("trainer-1"))
    assert end is not None
    assert end.reason is Reason.OUT_OF_MEMORY


def test_the_message_for_trainers_whose_servers_never_listen_names_the_log() -> None:
    waiting = replica("trainer-0", state=ReplicaState.STARTING, registered=False)
    [end] = events(job(JobState.REGISTERING, together=True), *FLEET, waiting, seconds=61)
    assert mentions(end.why, messages.TRAINERS_WAIT_FOR_PSERVERS)
