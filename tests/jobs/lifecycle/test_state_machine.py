"""The table of transitions, pair by pair, and invariants of random sequences of events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from jobs.backends.base import AttemptView, Phase, ReplicaView
from jobs.lifecycle import state_machine
from jobs.lifecycle.observations import Facts, Policy, events_from
from jobs.lifecycle.reasons import RULES, Reason, Retry
from jobs.lifecycle.replica_facts import ReplicaFact
from jobs.lifecycle.state_machine import EVENTS, TRANSITIONS, Event, InvalidTransition, JobView, effects_due, step
from jobs.lifecycle.states import ACTIVE, HOLDS_QUOTA, TERMINAL, JobState, ReplicaState
from tests.properties import examples

NOW = datetime(2026, 3, 1, tzinfo=UTC)
WAITS_FOR_QUOTA = "the attempt has not been admitted, so nothing of it has been begun"
TOO_EARLY = "what the event answers is only begun in a later state"
NOTHING_RUNS = "only a job that holds quota can be interrupted or end"
NOT_ENDED = "a person may only retry what has ended; the service refuses before"
NOT_STOPPING = "only a job that is being stopped is waited for"

_ORDER = [state for state in JobState if state not in TERMINAL]
_FIRST: Mapping[type[Event], JobState] = {
    state_machine.BuildStarted: JobState.ADMITTED,
    state_machine.Built: JobState.BUILDING,
    state_machine.BuildFailed: JobState.BUILDING,
    state_machine.Launched: JobState.LAUNCHING,
    state_machine.LaunchFailed: JobState.LAUNCHING,
    state_machine.AllRegistered: JobState.REGISTERING,
    state_machine.StrengthChanged: JobState.REGISTERING,
    state_machine.AttemptEnded: JobState.ADMITTED,
    state_machine.Interrupted: JobState.ADMITTED,
    state_machine.Preempted: JobState.ADMITTED,
    state_machine.Drained: JobState.STOPPING,
}


def impossible() -> dict[tuple[JobState, type[Event]], str]:
    """Return every pair that cannot happen, with the reason."""
    listed: dict[tuple[JobState, type[Event]], str] = {}
    for kind, first in _FIRST.items():
        for state in _ORDER[: _ORDER.index(first)]:
            listed[state, kind] = NOT_STOPPING if kind is state_machine.Drained else TOO_EARLY
    for kind in _FIRST:
        if kind is not state_machine.Drained:
            listed[JobState.QUEUED, kind] = (
                NOTHING_RUNS if kind in (state_machine.Interrupted, state_machine.Preempted) else WAITS_FOR_QUOTA
            )
    for state in ACTIVE:
        listed[state, state_machine.RetryRequested] = NOT_ENDED
    return listed


def job(state: JobState = JobState.QUEUED, **fields: object) -> JobView:
    view = JobView(id="j", state=state, attempt=1, changed=NOW, timeout=timedelta(minutes=5))
    if state in HOLDS_QUOTA:
        view = replace(view, admitted=NOW)
    if state is JobState.STOPPING:
        view = replace(view, reason=Reason.COMPLETED)
    return replace(view, **fields)


@pytest.mark.invariant(
    "The lifecycle table contains each pair of state and event, or the reason why the pair is impossible."
)
@pytest.mark.parametrize("state", JobState)
@pytest.mark.parametrize("kind", EVENTS)
def test_every_pair_is_in_the_table_or_impossible_for_a_reason(state: JobState, kind: type[Event]) -> None:
    assert ((state, kind) in TRANSITIONS) != ((state, kind) in impossible())


def test_an_impossible_pair_raises_with_the_state_and_the_event() -> None:
    with pytest.raises(InvalidTransition, match=r"Job j, attempt 1, is QUEUED since .* Drained cannot happen"):
        step(job(), state_machine.Drained(1), NOW)


@pytest.mark.parametrize("state", JobState)
@pytest.mark.parametrize("kind", EVENTS)
def test_an_event_of_another_attempt_changes_nothing_and_the_message_names_both(
    state: JobState, kind: type[Event]
) -> None:
    before = job(state, attempt=3)
    after = step(before, kind(2), NOW)
    assert (after.job, after.effects) == (before, ())
    assert after.why == "This is about attempt 2; the job is at attempt 3."


def test_a_build_that_ends_after_the_cancellation_is_late_and_changes_nothing() -> None:
    stopping = job(JobState.STOPPING)
    assert step(stopping, state_machine.Built(1), NOW).job == stopping


@pytest.mark.invariant("The reason for which a job ends is never replaced.")
def test_the_reason_of_the_end_is_never_replaced() -> None:
    stopping = job(JobState.STOPPING, reason=Reason.USER_ERROR)
    assert step(stopping, state_machine.CancelRequested(1), NOW).job.reason is Reason.USER_ERROR


@pytest.mark.parametrize("reason", Reason)
def test_without_retries_left_the_reason_decides_the_final_state(reason: Reason) -> None:
    spent = job(JobState.STOPPING, reason=reason, requeues={"lost": 3, "values_lost": 3})
    after = step(spent, state_machine.Drained(1), NOW).job
    assert after.state is (JobState.QUEUED if RULES[reason].retry is Retry.ALWAYS else RULES[reason].final)


def test_an_interruption_costs_no_retry() -> None:
    stopped = job(JobState.STOPPING, reason=Reason.INTERRUPTED, retries=1)
    again = step(stopped, state_machine.Drained(1), NOW).job
    failed = replace(again, state=JobState.STOPPING, reason=Reason.USER_ERROR)
    assert step(failed, state_machine.Drained(2), NOW).job.state is JobState.QUEUED


def test_lost_processes_are_retried_three_times() -> None:
    view = job(JobState.STOPPING, reason=Reason.LOST)
    for attempt in (1, 2, 3):
        view = step(view, state_machine.Drained(attempt), NOW).job
        assert (view.state, view.attempt) == (JobState.QUEUED, attempt + 1)
        view = replace(view, state=JobState.STOPPING, reason=Reason.LOST)
    assert step(view, state_machine.Drained(4), NOW).job.state is JobState.FAILED


def test_a_persons_retry_begins_a_new_attempt_with_a_new_budget() -> None:
    failed = job(JobState.FAILED, reason=Reason.LOST, requeues={"lost": 3}, finished=NOW)
    after = step(failed, state_machine.RetryRequested(1), NOW).job
    assert (after.state, after.attempt, after.requeues, after.reason) == (JobState.QUEUED, 2, {}, None)


# --- Sequences of events ---------------------------------------------------------------------------------------------
POLICY = Policy(registration=timedelta(seconds=60), drain=timedelta(seconds=10))
NAMES = ("master-0", "pserver-0", "trainer-0", "trainer-1")
ENDINGS = st.sampled_from(
    [{"code": 0}, {"code": 3}, {"code": 75}, {"signal": 9}, {"code": 1, "out_of_memory": True}, {"lost": True}]
)


class JobMachine(RuleBasedStateMachine):
    """A job whose processes start, register, end and vanish at random."""

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.job = job(retries=1)
        self.held: set[int] = set()
        self.cancelled = False
        self.ended_once = False
        self.new_attempt()

    def new_attempt(self) -> None:
        self.processes = {name: ReplicaFact(name, name.split("-")[0], ReplicaState.WAITING) for name in NAMES}
        self.launched = False

    @property
    def facts(self) -> Facts:
        views = tuple(
            ReplicaView(fact.name, Phase.EXITED if fact.ended else Phase.RUNNING) for fact in self.processes.values()
        )
        return Facts(
            cancelled_by="alice" if self.cancelled else "",
            replicas=tuple(self.processes.values()),
            view=AttemptView(gone=not self.launched, replicas=views),
        )

    def take(self, event: Event) -> None:
        attempt = self.job.attempt
        done = step(self.job, event, self.now)
        for effect in done.effects:
            if isinstance(effect, state_machine.OpenAttempt):
                self.held.add(effect.attempt)
            if isinstance(effect, state_machine.ReleaseQuota):
                self.held.discard(effect.attempt)
        self.job = done.job
        if self.job.attempt != attempt:
            self.new_attempt()

    def answer(self) -> Event | None:
        """Return the event of the state's standing effect without errors."""
        for effect in effects_due(self.job):
            if isinstance(effect, state_machine.Stop):
                for name, fact in self.processes.items():
                    if not fact.ended:
                        self.end(name, {"signal": 15})
                return None
            if isinstance(effect, state_machine.Launch):
                self.launched = True
            kinds = {
                state_machine.Reserve: state_machine.QuotaReserved,
                state_machine.Build: state_machine.Built,
                state_machine.Launch: state_machine.Launched,
            }
            return kinds[type(effect)](self.job.attempt)
        return None

    def end(self, name: str, how: dict[str, object]) -> None:
        fields = {**how, "flushed": True}
        state = ReplicaState.LOST if fields.pop("lost", False) else ReplicaState.EXITED
        self.processes[name] = replace(self.processes[name], state=state, **fields)

    @rule()
    def reconcile(self) -> None:
        event = next(events_from(self.job, self.facts, self.now, POLICY), None)
        if event is not None or (event := self.answer()) is not None:
            self.take(event)

    @precondition(lambda self: self.launched)
    @rule(name=st.sampled_from(NAMES))
    def register(self, name: str) -> None:
        fact = self.processes[name]
        if not fact.ended:
            self.processes[name] = replace(fact, state=ReplicaState.REGISTERED, registered=True)

    @precondition(lambda self: self.launched)
    @rule(name=st.sampled_from(NAMES), how=ENDINGS)
    def process_ends(self, name: str, how: dict[str, object]) -> None:
        if not self.processes[name].ended:
            self.end(name, how)

    @rule()
    def someone_cancels(self) -> None:
        self.cancelled = True

    @rule(seconds=st.integers(0, 400))
    def time_passes(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @rule(
        kind=st.sampled_from([state_machine.Built, state_machine.Launched, state_machine.BuildStarted]),
        back=st.integers(0, 1),
    )
    def an_event_arrives_late(self, kind: type[Event], back: int) -> None:
        event = kind(self.job.attempt - back)
        if (self.job.state, kind) in TRANSITIONS and (self.job.state, kind) not in state_machine._AWAITED:
            self.take(event)

    @invariant()
    def the_end_is_never_left(self) -> None:
        assert not self.ended_once or self.job.state in TERMINAL
        self.ended_once = self.job.state in TERMINAL

    @invariant()
    def quota_is_held_in_exactly_the_states_that_hold_quota(self) -> None:
        assert self.held == ({self.job.attempt} if self.job.state in HOLDS_QUOTA else set())

    @invariant()
    def a_reason_is_there_while_stopping_and_after_the_end_alone(self) -> None:
        assert (self.job.reason is not None) == (self.job.state in TERMINAL | {JobState.STOPPING})

    @invariant()
    def every_state_has_its_message(self) -> None:
        assert self.job.why or self.job.state is JobState.QUEUED

    def teardown(self) -> None:
        """Every job ends after it is cancelled, time passes and it is reconciled."""
        self.cancelled = True
        self.now += timedelta(hours=1)
        for _ in range(20):
            self.reconcile()
        assert self.job.state in TERMINAL


TestJobMachine = JobMachine.TestCase
TestJobMachine.settings = settings(max_examples=examples(60), stateful_step_count=25, deadline=None)
