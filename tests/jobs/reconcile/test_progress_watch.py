"""Watch over the progress of running jobs: its events are written once, and the field ``on_stall`` is obeyed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db.models import F

from jobs.backends.base import AttemptRef, Phase
from jobs.control.stack_groups import ReplicaStacks, StackFrame, StackThread
from jobs.lifecycle.progress.reported import Reported
from jobs.lifecycle.progress.signs import WINDOWS
from jobs.lifecycle.reasons import Reason
from jobs.lifecycle.states import JobState, ReplicaState
from jobs.models import Attempt, Job, JobEvent, Replica
from jobs.models.streams import Block, StreamHead
from jobs.reconcile import progress_watch, reconciler
from jobs.reconcile.progress_watch import AWAY, EVERY, PORTION_SECONDS, ProgressWatch, TakeStacks
from jobs.streams import store
from portal.common.clock import now
from runtime import contract
from tests.jobs.fakes import ObedientBackend
from tests.jobs.reconcile.test_reconciler import running

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("backend")]
Submit = Callable[..., Job]
Values = tuple[str, str, float]  # replica, key, value


READING = 3  # queries of a look at any number of jobs
FRAME = StackFrame("/work/code/train.py", 1, "step")


def no_stacks(ref: AttemptRef, names: Sequence[str]) -> tuple[list[ReplicaStacks], float]:
    """Answer as when no agent can be reached."""
    return [ReplicaStacks(name, "unresponsive", "The agent cannot be reached.") for name in names], 0.0


def stacks_of_a_hang(ref: AttemptRef, names: Sequence[str]) -> tuple[list[ReplicaStacks], float]:
    """Answer for trainer-1 alone, which stands in the user's code."""
    found, spread = no_stacks(ref, names)
    thread = StackThread(1, "MainThread", native=False, frames=(FRAME,))
    others = [one for one in found if one.replica != "trainer-1"]
    return [*others, ReplicaStacks("trainer-1", "running", threads=(thread,))], spread


class AtOnce(Executor):
    """Calls the function in ``submit``."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


class Later(Executor):
    """Calls no function; ``futures`` are what ``submit`` returned."""

    def __init__(self) -> None:
        self.futures: list[Future[Any]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.futures.append(Future())
        return self.futures[-1]


def watch(take: TakeStacks = no_stacks) -> ProgressWatch:
    return ProgressWatch(take, AtOnce(), spent=lambda: 0.0)


class Run:
    """A running job whose trainers report, and the watch of it."""

    def __init__(self, job: Job, take: TakeStacks = no_stacks) -> None:
        self.job, self.watch = job, watch(take)
        self.now: datetime = now()
        self._sent: dict[str, int] = {}
        self.look()

    def look(self, after: float = 0.0) -> None:
        """Let a time pass, with a look every five seconds and at its end."""
        end = self.now + timedelta(seconds=after)
        while self.now < end - EVERY:
            self.now += EVERY
            self.watch.when_due(self.now)
        self.now = end
        self.watch.when_due(self.now)

    def report(self, *values: Values) -> None:
        attempt = Attempt.objects.get(job=self.job)
        for replica, key, value in values:
            first = self._sent[replica] = self._sent.get(replica, 0) + 1
            point = (self.now.timestamp(), 1.0, key, value)
            store.append_metrics(job_id=self.job.pk, attempt=attempt, replica=replica, first=first, points=[point])

    def step(self, name: str, read: float = 0.5) -> None:
        self.report(*((name, key, read if key == contract.STEP_READ else 0.5) for key in contract.STEP_PARTS))

    def stand(self) -> None:
        """Let a minute pass in which trainer-0 waits for trainer-1, which stands."""
        for _ in range(12):
            self.report(
                ("trainer-0", contract.STEP_OPEN_WAIT, 60.0),
                ("trainer-0", contract.STEP_STILL, 60.0),
                ("trainer-1", contract.STEP_OPEN_COMPUTE, 60.0),
                ("trainer-1", contract.STEP_STILL, 60.0),
            )
            self.look(5)

    def events(self, kind: str) -> list[str]:
        return list(JobEvent.objects.filter(job=self.job, kind=kind).order_by("pk").values_list("text", flat=True))

    def reported(self) -> Reported:
        return Reported.from_json(Attempt.objects.get(job=self.job).progress)


@pytest.fixture
def start(submit: Submit) -> Callable[..., Run]:
    def started(**fields: Any) -> Run:
        run = Run(running(submit, **fields))
        run.step("trainer-0")
        run.step("trainer-1")
        run.look(5)
        return run

    return started


STALLED = "No step ended for 1 minute: {}; trainer-0 waits for it.".format(
    "trainer-1 has been computing at the same instruction for 60 s"
)


# --- Stalls ----------------------------------------------------------------------------------------------------------
def test_a_stall_is_an_event_and_the_message_of_the_job(start: Callable[..., Run]) -> None:
    run = start()
    run.stand()
    assert run.events("stalled") == [STALLED]
    assert Job.objects.get().why == STALLED


def test_the_diagnosis_names_the_line_of_the_stack(start: Callable[..., Run]) -> None:
    run = start()
    run.watch = watch(stacks_of_a_hang)
    run.look()
    run.stand()
    [text] = run.events("stalled")
    assert text.endswith("trainer-1 stands at train.py line 1 (step); trainer-0 waits for it.")


@pytest.mark.invariant("A stall is written to the timeline once, whichever process of the sweep decides.")
def test_a_stall_is_said_once_also_by_a_new_process(start: Callable[..., Run]) -> None:
    run = start()
    run.stand()
    run.look(5)
    run.watch = watch()
    run.look(5)
    run.look(120)
    assert len(run.events("stalled")) == 1


def test_a_sweep_that_is_killed_between_decision_and_event_writes_it_once(
    start: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = start()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("jobs.reconcile.stalls.effects.publish", _killed)
        run.stand()
    assert run.events("stalled") == []
    run.look(5)
    assert len(run.events("stalled")) == 1


def _killed(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_decision_about_a_job_that_another_process_changed_writes_nothing(
    start: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = start()
    rows = progress_watch._rows

    def outdated() -> Sequence[Any]:
        found = rows()
        Job.objects.update(revision=F("revision") + 1)
        return found

    monkeypatch.setattr(progress_watch, "_rows", outdated)
    run.stand()
    assert (run.events("stalled"), run.reported()) == ([], Reported())


def test_the_end_of_a_stall_is_said_once_and_the_message_returns(start: Callable[..., Run]) -> None:
    run = start()
    run.stand()
    run.step("trainer-0")
    run.look(5)
    run.look(5)
    assert run.events("progress") == ["The job makes progress again, after 65 seconds."]
    assert Job.objects.get().why == "Training with 2 trainers."


def test_a_stall_with_on_stall_fail_ends_the_attempt(start: Callable[..., Run]) -> None:
    run = start(on_stall="fail")
    run.stand()
    job = Job.objects.get()
    assert (job.reason, job.state) == (Reason.STALLED, JobState.STOPPING)


def test_an_attempt_that_fails_by_a_stall_ends_although_the_process_that_decided_is_gone(
    start: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = start(on_stall="fail")
    monkeypatch.setattr(progress_watch, "reconcile", lambda job: None)
    run.stand()
    assert Job.objects.get().state == JobState.RUNNING
    reconciler.reconcile(run.job.pk)
    assert Job.objects.get().reason == Reason.STALLED


def test_a_stall_with_on_stall_restart_kills_the_named_replica(
    start: Callable[..., Run], backend: ObedientBackend
) -> None:
    run = start(on_stall="restart")
    run.stand()
    assert [call for call in backend.calls if call.startswith("kill")] == ["kill trainer-1"]


def test_the_kill_is_repeated_until_the_replica_is_started_again(
    start: Callable[..., Run], backend: ObedientBackend
) -> None:
    run = start(on_stall="restart")
    run.stand()
    backend.calls.clear()
    run.watch = watch()
    run.look(5)
    assert "kill trainer-1" in backend.calls
    Replica.objects.filter(name="trainer-1").update(start_number=2)
    backend.becomes(next(iter(backend.views)), "trainer-1", Phase.RUNNING, start_number=2)
    backend.calls.clear()
    run.look(5)
    assert "kill trainer-1" not in backend.calls
    assert run.reported() == Reported()


def test_a_replica_without_restarts_is_not_killed(start: Callable[..., Run], backend: ObedientBackend) -> None:
    run = start(on_stall="restart")
    Replica.objects.filter(name="trainer-1").update(restarts=3)
    run.stand()
    assert "kill trainer-1" not in backend.calls
    assert run.events("stalled")[0].endswith("the diagnosis names none that has restarts left.")


def test_a_job_without_steps_or_points_is_stalled_when_it_prints_nothing(submit: Submit) -> None:
    run = Run(running(submit, stall_timeout="30s"))
    run.look(30)
    assert run.events("stalled") == ["No line was printed for 30 seconds: the processes do not say where they are."]


def test_nothing_is_decided_while_an_agent_is_not_heard(start: Callable[..., Run]) -> None:
    run = start()
    Replica.objects.filter(name="trainer-0").update(heartbeat=run.now)
    run.stand()
    assert run.events("stalled") == []


def test_the_points_of_an_agent_that_is_heard_again_are_awaited(start: Callable[..., Run]) -> None:
    run = start()
    Replica.objects.filter(name="trainer-0").update(heartbeat=run.now)
    run.look(120)
    Replica.objects.filter(name="trainer-0").update(heartbeat=run.now)
    run.look(10)
    assert run.events("stalled") == []


@pytest.mark.parametrize("seconds", [3600, -3600])
def test_a_jump_of_the_clock_is_no_time_without_progress(start: Callable[..., Run], seconds: int) -> None:
    run = start()
    run.now += timedelta(seconds=seconds)
    run.look(10)
    assert run.events("stalled") == []
    run.stand()
    assert len(run.events("stalled")) == 1


def test_a_job_that_waits_for_a_server_to_start_again_is_not_stalled(start: Callable[..., Run]) -> None:
    run = start()
    Replica.objects.filter(role="pserver").update(state=ReplicaState.LOST)
    run.stand()
    assert run.events("stalled") == []


def test_steps_after_the_restoration_of_an_older_database_are_progress(start: Callable[..., Run]) -> None:
    run = start()
    run.report(*[("trainer-0", "loss", 0.5)] * 100)
    run.look(5)
    Block.objects.all().delete()
    StreamHead.objects.update(last=0)
    run.look(5)
    for _ in range(13):
        run.step("trainer-0")
        run.look(5)
    assert run.events("stalled") == []


# --- Passes of the sweep ---------------------------------------------------------------------------------------------
def test_stacks_are_taken_by_another_thread_and_used_in_a_later_look(start: Callable[..., Run]) -> None:
    run, pool = start(), Later()
    run.watch = ProgressWatch(no_stacks, pool)
    run.look()
    run.stand()
    assert (len(pool.futures), run.events("stalled")) == (1, [])
    pool.futures[0].set_result([])
    run.look(5)
    assert len(run.events("stalled")) == 1


def test_stacks_of_a_job_that_moves_again_are_dropped(start: Callable[..., Run]) -> None:
    run, pool = start(), Later()
    run.watch = ProgressWatch(no_stacks, pool)
    run.look()
    run.stand()
    run.step("trainer-0")
    run.look(5)
    assert pool.futures[0].cancelled()
    run.stand()
    assert len(pool.futures) == 2


def test_a_pass_looks_at_a_portion_of_the_jobs_and_the_next_goes_on(
    submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [running(submit).pk for _ in range(3)]
    seen: list[UUID] = []
    time = itertools.count(0.0, PORTION_SECONDS / 2)
    sweep = ProgressWatch(no_stacks, AtOnce(), spent=lambda: next(time))
    monkeypatch.setattr(sweep, "_look_at", lambda row, at: seen.append(row.job))
    begun, counts = now(), []
    for second in range(4):
        sweep.when_due(begun + timedelta(seconds=second))
        counts.append(len(seen))
    assert (counts, sorted(seen)) == ([1, 2, 3, 3], sorted(jobs))


def test_a_look_that_takes_many_passes_keeps_the_signs(submit: Submit) -> None:
    jobs = [running(submit, stall_timeout="30s") for _ in range(2)]
    time = itertools.count(0.0, PORTION_SECONDS / 2)  # one job in each pass
    sweep = ProgressWatch(no_stacks, AtOnce(), spent=lambda: next(time))
    begun = now()
    for number in range(8):
        sweep.when_due(begun + number * AWAY / 2)
    assert JobEvent.objects.filter(kind="stalled", job__in=jobs).count() == 2


def test_the_new_points_of_a_job_take_one_query(
    start: Callable[..., Run], django_assert_num_queries: Callable[[int], Any]
) -> None:
    run = start()
    run.step("trainer-0")
    with django_assert_num_queries(READING + 1):
        run.look(5)


# --- Stragglers ------------------------------------------------------------------------------------------------------
def test_a_straggler_is_said_once_and_withdrawn_once(start: Callable[..., Run]) -> None:
    run = start()
    for read in (0.8, 0.8, 0.0, 0.0):
        for _ in range(WINDOWS // 2 + 1):
            run.step("trainer-0", 0.0)
            run.step("trainer-1", read)
            run.look(5)
    assert run.events("straggler") == [
        "trainer-1 takes 1.8 x as long as the others: reading.",
        "trainer-1 no longer takes longer than the others.",
    ]


def test_a_job_with_a_held_program_is_not_stalled(start: Callable[..., Run]) -> None:
    run = start()
    held = {"exception": "ValueError", "seconds": 900, "until": now().timestamp() + 900}
    Replica.objects.filter(name="trainer-0").update(held=held)
    run.stand()
    assert run.events("stalled") == []


def test_a_paused_job_is_not_stalled(start: Callable[..., Run]) -> None:
    run = start()
    pause = {"on": True, "done": True, "since": now().timestamp(), "spent": 0.0, "by": "ada", "how": "signal"}
    Attempt.objects.update(pause=pause)
    run.stand()
    assert run.events("stalled") == []
