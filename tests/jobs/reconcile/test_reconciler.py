"""Reconciler: progress of jobs with backends that work and backends that fail."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import OperationalError, connection

from jobs.backends.base import Phase
from jobs.ingest.payloads import Report
from jobs.lifecycle.fault_injection import Rehearsal
from jobs.lifecycle.state_machine import LAUNCH_PATIENCE, BuildStarted
from jobs.lifecycle.states import JobState
from jobs.messages import jobs as messages
from jobs.models import Attempt, Job, JobEvent, Replica, Transition
from jobs.reconcile import reconciler, shutdown
from jobs.reconcile.sweep import sweep
from jobs.selectors import attempts
from jobs.services import jobs as job_services
from jobs.services import replica_reports, scaling
from portal.common.clock import now
from quota.models import Limit, Reservation
from tests.jobs.conftest import Use
from tests.jobs.fakes import (
    BrokenBackend,
    ForgetfulBackend,
    MeddlingBackend,
    ObedientBackend,
    RefusingBackend,
    StubbornBackend,
)
from tests.messages import mentions
from tests.personas import Personas

pytestmark = pytest.mark.django_db
Submit = Callable[..., Job]
REPLICAS = ("master-0", "pserver-0", "trainer-0", "trainer-1")


def report(job: Job, replica: str, phase: str, **fields: object) -> None:
    """Send a report of the replica's agent."""
    job.refresh_from_db()
    attempt = Attempt.objects.get(job=job, number=job.attempt)
    report_fields = {"code": None, "signal": None, "out_of_memory": False, "why": "", **fields}
    replica_reports.record_report(attempt, Report(replica=replica, phase=phase, **report_fields))


def running(submit: Submit, **fields: object) -> Job:
    job = submit(**fields)
    reconciler.reconcile(job.pk)
    for replica in REPLICAS:
        report(job, replica, "registered")
    assert reconciler.reconcile(job.pk) is JobState.RUNNING
    job.refresh_from_db()
    return job


def later(seconds: float) -> None:
    """Backdate the state of every job by ``seconds``."""
    for job in Job.objects.all():
        Job.objects.filter(pk=job.pk).update(changed=job.changed - timedelta(seconds=seconds))


def history(job: Job) -> list[str]:
    return list(Transition.objects.filter(job=job).order_by("id").values_list("state", flat=True))


def reserved() -> int:
    return Reservation.objects.filter(released=None).count()


def test_a_submission_reaches_the_backend_in_one_go(backend: ObedientBackend, submit: Submit) -> None:
    job = submit()
    assert reconciler.reconcile(job.pk) is JobState.REGISTERING
    assert history(job) == ["QUEUED", "ADMITTED", "BUILDING", "LAUNCHING", "REGISTERING"]
    [plan] = backend.plans.values()
    assert [one.name for one in plan.replicas] == list(REPLICAS)
    assert (plan.bundle / "train.py").read_text() == "print('hello')\n"
    assert Replica.objects.count() == len(REPLICAS)


def test_a_job_runs_when_all_have_registered(backend: ObedientBackend, submit: Submit) -> None:
    job = running(submit)
    assert job.started is not None
    assert job.why == messages.TRAINING(trainers=messages.TRAINER_COUNT(count=2))


def test_a_completed_job_gives_its_quota_back_and_forgets_the_attempt(backend: ObedientBackend, submit: Submit) -> None:
    job = running(submit)
    assert reserved() == 1
    for trainer in ("trainer-0", "trainer-1"):
        report(job, trainer, "exited", code=0)
        backend.becomes(next(iter(backend.views)), trainer, Phase.EXITED, code=0)
    assert reconciler.reconcile(job.pk) is JobState.STOPPING
    assert reconciler.reconcile(job.pk) is JobState.SUCCEEDED
    job.refresh_from_db()
    assert (job.reason, job.why, reserved()) == (
        "completed",
        messages.TRAINED(trainers=messages.TRAINER_COUNT(count=2)),
        0,
    )
    assert backend.views == {}


def test_a_failing_script_is_reported_with_the_agents_text(backend: ObedientBackend, submit: Submit) -> None:
    job = running(submit)
    report(job, "trainer-1", "exited", code=3, why="exited with code 3: ValueError: no in train.py line 4")
    reconciler.reconcile(job.pk)
    assert reconciler.reconcile(job.pk) is JobState.FAILED
    job.refresh_from_db()
    assert job.reason == "user_error"
    assert job.why == "trainer-1 exited with code 3: ValueError: no in train.py line 4."


def test_retries_make_the_next_attempt_with_its_own_replicas(backend: ObedientBackend, submit: Submit) -> None:
    job = running(submit, retries=1)
    report(job, "trainer-1", "exited", code=3)
    reconciler.reconcile(job.pk)
    assert reconciler.reconcile(job.pk) is JobState.REGISTERING
    job.refresh_from_db()
    assert (job.attempt, job.reason, reserved()) == (2, "", 1)
    assert Replica.objects.filter(attempt__number=2).count() == len(REPLICAS)


def test_a_cancelled_waiting_job_ends_at_once(backend: ObedientBackend, submit: Submit, personas: Personas) -> None:
    job = submit()
    job_services.cancel_job(actor=personas.developer, job_id=job.pk)
    assert reconciler.reconcile(job.pk) is JobState.CANCELLED
    assert Transition.objects.filter(job=job).last().actor == personas.developer
    assert backend.calls == []


def test_a_cancellation_during_the_launch_wins(use: Use, submit: Submit, personas: Personas) -> None:
    job = submit()
    backend = use(MeddlingBackend(lambda: job_services.cancel_job(actor=personas.owner, job_id=job.pk)))
    assert reconciler.reconcile(job.pk) is JobState.STOPPING
    assert reconciler.reconcile(job.pk) is JobState.CANCELLED
    assert "stop" in backend.calls
    job.refresh_from_db()
    assert job.why == messages.CANCELLED_BY(name="owner")


def test_a_job_that_does_not_fit_now_waits_and_explains_for_what(
    backend: ObedientBackend, submit: Submit, personas: Personas
) -> None:
    first, second = running(submit), submit()
    Limit.objects.create(namespace=personas.namespace, resource="jobs", amount=1)
    assert reconciler.reconcile(second.pk) is JobState.QUEUED
    second.refresh_from_db()
    assert second.why.startswith("Waiting for quota. The job needs 1 running job; 0 of 1 are free")
    revision = second.revision
    reconciler.reconcile(second.pk)
    second.refresh_from_db()
    assert second.revision == revision
    job_services.cancel_job(actor=personas.owner, job_id=first.pk)
    for _ in range(3):
        sweep(now())
    second.refresh_from_db()
    assert second.state == JobState.REGISTERING


def test_a_launch_that_is_refused_fails_with_the_backends_message(use: Use, submit: Submit) -> None:
    use(RefusingBackend())
    job = submit(retries=3)
    reconciler.reconcile(job.pk)
    job.refresh_from_db()
    assert (job.state, job.reason, job.why) == ("FAILED", "launch_refused", "This machine has no free capacity.")


def test_a_launch_that_may_go_better_is_tried_again_by_each_sweep_until_it_does(use: Use, submit: Submit) -> None:
    backend = use(RefusingBackend(retryable=True))
    job = submit()
    for seconds in (0, 1, 100):
        later(seconds)
        assert reconciler.reconcile(job.pk) is JobState.LAUNCHING
    assert backend.calls.count("launch") == 3
    job.refresh_from_db()
    assert job.why == "This machine has no free capacity. It is tried again."
    use(ObedientBackend())
    assert reconciler.reconcile(job.pk) is JobState.REGISTERING


def test_a_launch_that_does_not_get_better_ends_as_many_attempts_as_retries_say(use: Use, submit: Submit) -> None:
    use(RefusingBackend(retryable=True))
    job = submit(retries=2)
    for attempt in (1, 2, 3):
        assert reconciler.reconcile(job.pk) is JobState.LAUNCHING
        job.refresh_from_db()
        assert job.attempt == attempt
        later(LAUNCH_PATIENCE.total_seconds())
    assert reconciler.reconcile(job.pk) is JobState.FAILED
    job.refresh_from_db()
    assert (job.reason, job.why) == ("launch_failed", "This machine has no free capacity.")


def test_lost_processes_are_started_again_three_times(use: Use, submit: Submit) -> None:
    use(ForgetfulBackend())
    job = submit()
    reconciler.reconcile(job.pk)
    job.refresh_from_db()
    assert (job.state, job.reason, job.attempt) == ("FAILED", "lost", 4)


def test_replicas_that_never_register_are_named(backend: ObedientBackend, submit: Submit) -> None:
    job = submit()
    reconciler.reconcile(job.pk)
    for replica in REPLICAS[:3]:
        report(job, replica, "registered")
    later(61)
    reconciler.reconcile(job.pk)
    job.refresh_from_db()
    assert job.reason == "registration_timeout"
    assert mentions(job.why, messages.NOT_REGISTERED_IN_TIME, replicas="trainer-1")


def test_processes_that_cannot_be_stopped_keep_their_quota(use: Use, submit: Submit, personas: Personas) -> None:
    use(StubbornBackend())
    job = running(submit)
    job_services.cancel_job(actor=personas.owner, job_id=job.pk)
    later(3600)
    assert reconciler.reconcile(job.pk) is JobState.STOPPING
    assert reserved() == 1


def test_an_end_that_only_the_backend_saw_is_written_down(backend: ObedientBackend, submit: Submit) -> None:
    job = running(submit)
    backend.becomes(next(iter(backend.views)), "trainer-1", Phase.EXITED, signal=9)
    assert reconciler.reconcile(job.pk) is JobState.RUNNING
    row = Replica.objects.get(name="trainer-1")
    assert (row.state, row.signal, row.flushed) == ("exited", 9, False)
    job.refresh_from_db()
    assert job.why == messages.TRAINING_REDUCED(
        left=1,
        all=2,
        endings=messages.RESTARTING(
            ending=messages.ENDING(replica="trainer-1", ending=messages.ENDED_BY(signal="SIGKILL"))
        ),
    )


def ended_before(job: Job, name: str, seconds: float) -> None:
    Replica.objects.filter(attempt__job=job, name=name).update(finished=now() - timedelta(seconds=seconds))


def test_a_lost_master_is_restarted_and_the_timeline_records_it(backend: ObedientBackend, submit: Submit) -> None:
    job = running(submit)
    backend.becomes(next(iter(backend.views)), "master-0", Phase.EXITED, signal=9)
    reconciler.reconcile(job.pk)
    assert "restart master-0 as 2" not in backend.calls, "not at once"
    ended_before(job, "master-0", 1)
    assert reconciler.reconcile(job.pk) is JobState.RUNNING
    row = Replica.objects.get(name="master-0")
    assert (row.state, row.start_number, row.restarts, row.signal) == ("waiting", 2, 1, None)
    assert backend.calls[-1] == "restart master-0 as 2"
    event = JobEvent.objects.get(job=job, kind="restarted")
    assert (event.replica, event.text) == ("master-0", "master-0 was terminated by SIGKILL; restarted (1 of 3).")
    job.refresh_from_db()
    assert job.why == messages.TRAINING_PARTIAL(left=2, all=2, endings=messages.JOINING_ONE(replicas="master-0"))


def test_the_next_start_of_a_replica_begins_without_the_incarnation_of_the_last(
    backend: ObedientBackend, submit: Submit
) -> None:
    job = running(submit)
    report(job, "master-0", "registered", incarnation=12)
    backend.becomes(next(iter(backend.views)), "master-0", Phase.EXITED, signal=9)
    reconciler.reconcile(job.pk)
    ended_before(job, "master-0", 1)
    reconciler.reconcile(job.pk)
    row = Replica.objects.get(name="master-0")
    assert (row.start_number, row.incarnation) == (2, None)


def test_the_restarts_of_a_replica_are_bounded(backend: ObedientBackend, submit: Submit) -> None:
    job = running(submit)
    for start_number in (1, 2, 3, 4):
        backend.becomes(next(iter(backend.views)), "trainer-1", Phase.LOST, start_number=start_number, why="it is gone")
        reconciler.reconcile(job.pk)
        ended_before(job, "trainer-1", 10)
        assert reconciler.reconcile(job.pk) is JobState.RUNNING
    row = Replica.objects.get(name="trainer-1")
    assert (row.state, row.start_number, row.restarts) == ("lost", 4, 3)


def test_one_broken_job_does_not_hold_up_the_sweep(use: Use, submit: Submit) -> None:
    use(BrokenBackend())
    first = submit(name="first")
    second = submit(name="second")
    assert sweep(now()) == 2
    states = dict(Job.objects.values_list("name", "state"))
    assert states == {first.name: "REGISTERING", second.name: "REGISTERING"}


def test_the_sweep_takes_high_priority_first(backend: ObedientBackend, submit: Submit, settings) -> None:
    settings.DEFAULT_QUOTA = {"jobs": 1}
    for priority in ("low", "normal", "high"):
        submit(name=f"job-{priority}", priority=priority)
    for minutes in range(10):
        sweep(now() + timedelta(minutes=minutes))
        Job.objects.exclude(state="QUEUED").update(cancel_requested=now())
    admitted = Transition.objects.filter(state="ADMITTED").order_by("id").values_list("job__name", flat=True)
    assert list(admitted) == ["job-high", "job-normal", "job-low"]


def test_an_idle_sweep_costs_one_query(db: None, django_assert_num_queries: Callable[..., object]) -> None:
    with django_assert_num_queries(1):
        assert sweep(now()) == 0


def test_a_second_write_on_the_same_revision_is_refused(backend: ObedientBackend, submit: Submit) -> None:
    job = submit()
    reconciler._reserve(reconciler.load(job.pk), effects_reserve(), now)
    stale = reconciler.load(job.pk)
    assert reconciler.apply(stale, BuildStarted(1)) is reconciler.Outcome.APPLIED
    assert reconciler.apply(stale, BuildStarted(1)) is reconciler.Outcome.CONFLICT
    assert history(job).count("BUILDING") == 1


def effects_reserve() -> reconciler.Reserve:
    return reconciler.Reserve(1)


def test_an_attempts_token_is_the_same_at_every_launch(backend: ObedientBackend, submit: Submit) -> None:
    job = submit()
    reconciler.reconcile(job.pk)
    attempt = Attempt.objects.get(job=job)
    assert attempts.token_of(attempt) == backend.plans[str(attempt.pk)].ingest_token


def test_interrupted_jobs_go_back_to_the_queue_without_using_retries(backend: ObedientBackend, submit: Submit) -> None:
    job, waiting = running(submit), submit()
    assert shutdown.interrupt_all(seconds=5) == 0
    job.refresh_from_db()
    waiting.refresh_from_db()
    assert (job.state, job.attempt, reserved()) == ("QUEUED", 2, 0)
    assert (waiting.state, waiting.attempt) == ("QUEUED", 1)
    assert reconciler.reconcile(job.pk) is JobState.REGISTERING


def test_an_interruption_does_not_wait_for_ever(use: Use, submit: Submit) -> None:
    use(StubbornBackend())
    job = running(submit)
    assert shutdown.interrupt_all(seconds=0.1) == 1
    job.refresh_from_db()
    assert (job.state, job.reason) == ("STOPPING", "interrupted")


def test_a_job_that_cannot_be_interrupted_keeps_no_other_from_it(
    backend: ObedientBackend, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = running(submit), running(submit)
    cause = reconciler.cause

    def fail_for_the_first(job_id: UUID, *given: Any, **named: Any) -> Any:
        if job_id == first.pk:
            raise OperationalError("the database is locked")
        return cause(job_id, *given, **named)

    monkeypatch.setattr(reconciler, "cause", fail_for_the_first)
    shutdown.interrupt_all(seconds=5)
    second.refresh_from_db()
    assert (second.state, second.attempt) == ("QUEUED", 2)


def test_a_stopping_job_gets_no_more_grace_than_others_when_the_portal_stops(use: Use, submit: Submit) -> None:
    backend = use(StubbornBackend())
    job = running(submit)
    job_services.cancel_job(actor=job.owner, job_id=job.pk)
    reconciler.reconcile(job.pk)
    assert backend.graces[-1] == timedelta(seconds=5)
    shutdown.interrupt_all(seconds=0.0)
    assert min(backend.graces) == attempts.INTERRUPTION_GRACE


@pytest.mark.django_db(transaction=True)
def test_two_reconcilers_at_once_make_each_transition_once(backend: ObedientBackend, submit: Submit) -> None:
    job = submit()
    start = threading.Barrier(3)

    def work() -> None:
        start.wait()
        reconciler.reconcile(job.pk)
        connection.close()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert history(job) == ["QUEUED", "ADMITTED", "BUILDING", "LAUNCHING", "REGISTERING"]
    assert Attempt.objects.filter(job=job).count() == 1
    assert reserved() == 1


# --- Scaling ---------------------------------------------------------------------------------------------------------
def trainers(job: Job) -> dict[str, tuple[int, bool]]:
    rows = Replica.objects.filter(attempt__job=job, role="trainer").order_by("index")
    return {row.name: (row.start_number, row.dismissed) for row in rows}


def scaled(job: Job, wanted: int, personas: Personas) -> Job:
    scaling.scale_job(actor=personas.developer, job_id=job.pk, desired={"trainer": wanted})
    assert reconciler.reconcile(job.pk) is JobState.RUNNING
    job.refresh_from_db()
    return job


ROLES = {"trainer": {"replicas": 2, "min": 1, "max": 5, "memory": "512Mi"}}


def test_newcomers_get_rows_and_processes(backend: ObedientBackend, submit: Submit, personas: Personas) -> None:
    job = scaled(running(submit, roles=ROLES), 4, personas)
    assert trainers(job) == {f"trainer-{index}": (1, False) for index in range(4)}
    assert "scale to 4" in backend.calls
    assert job.why == messages.TRAINING_PARTIAL(
        left=2, all=4, endings=messages.JOINING(replicas="trainer-2 and trainer-3")
    )
    for name in ("trainer-2", "trainer-3"):
        report(job, name, "registered")
    reconciler.reconcile(job.pk)
    job.refresh_from_db()
    assert job.why == messages.TRAINING(trainers=messages.TRAINER_COUNT(count=4))


def test_a_trainer_that_leaves_is_not_missed_and_may_come_back(
    backend: ObedientBackend, submit: Submit, personas: Personas
) -> None:
    job = scaled(running(submit, roles=ROLES), 1, personas)
    assert (trainers(job)["trainer-1"], job.why) == (
        (1, True),
        messages.TRAINING(trainers=messages.TRAINER_COUNT_ONE(count=1)),
    )
    report(job, "trainer-1", "exited", code=75, start_number=1)
    job = scaled(job, 2, personas)
    assert trainers(job)["trainer-1"] == (2, False)
    assert backend.calls[-1] == "restart trainer-1 as 2"
    report(job, "trainer-1", "exited", code=75, start_number=1)
    assert Replica.objects.get(name="trainer-1").state == "waiting", "a report of the earlier start changes nothing"


def test_a_desired_number_survives_a_crash_of_the_reconciler(use: Use, submit: Submit, personas: Personas) -> None:
    backend = use(ObedientBackend())
    job = running(submit, roles=ROLES)
    scaling.scale_job(actor=personas.developer, job_id=job.pk, desired={"trainer": 3})
    reconciler._turn(reconciler.load(job.pk), now)
    assert (len(trainers(job)), backend.calls.count("scale to 3")) == (3, 0), "killed between the rows and the backend"
    reconciler.reconcile(job.pk)
    assert backend.calls.count("scale to 3") == 1
    reconciler.reconcile(job.pk)
    assert backend.calls.count("scale to 3") == 1


def test_the_next_attempt_begins_with_the_desired_trainers(
    backend: ObedientBackend, submit: Submit, personas: Personas
) -> None:
    job = scaled(running(submit, roles=ROLES, retries=1), 3, personas)
    report(job, "trainer-0", "exited", code=3)
    reconciler.reconcile(job.pk)
    assert reconciler.reconcile(job.pk) is JobState.REGISTERING
    assert Replica.objects.filter(attempt__number=2, role="trainer").count() == 3
    [held] = Reservation.objects.filter(released=None)
    assert held.amounts["cpu"] == 0.5 + 1 + 3


# --- Rehearsing failure ----------------------------------------------------------------------------------------------
def test_a_rehearsed_end_costs_no_restart(backend: ObedientBackend, submit: Submit, personas: Personas) -> None:
    job = running(submit)
    job_services.rehearse(actor=personas.developer, job_id=job.pk, rehearsal={"kill": "master", "every": "1s"})
    assert reconciler.reconcile(job.pk, clock=lambda: now() + timedelta(seconds=2)) is JobState.RUNNING
    assert backend.calls[-1] == "kill master-0"
    backend.becomes(next(iter(backend.views)), "master-0", Phase.EXITED, signal=9)
    reconciler.reconcile(job.pk)
    ended_before(job, "master-0", 1)
    reconciler.reconcile(job.pk)
    row = Replica.objects.get(name="master-0")
    assert (row.start_number, row.restarts, row.rehearsed) == (2, 0, False)
    events = JobEvent.objects.filter(job=job, kind__in=("rehearsal", "restarted")).order_by("id")
    assert list(events.values_list("text", flat=True)) == [
        messages.REHEARSAL_STARTED(name="developer", length=messages.SECOND_COUNT_ONE(count=1), role="master"),
        messages.REHEARSAL_KILL(replica="master-0", name="developer", number=1, most=20),
        "master-0 was terminated by SIGKILL; restarted (failure rehearsal).",
    ]


def test_a_rehearsal_kills_once_an_interval(backend: ObedientBackend, submit: Submit, personas: Personas) -> None:
    job = running(submit)
    job_services.rehearse(actor=personas.developer, job_id=job.pk, rehearsal={"kill": "trainer", "every": "5s"})
    job.refresh_from_db()
    start = Rehearsal.from_json(job.rehearsal).last
    for seconds in (1, 4, 6, 7, 10):
        reconciler.reconcile(job.pk, clock=lambda seconds=seconds: start + timedelta(seconds=seconds))
    assert [call for call in backend.calls if call.startswith("kill")] == ["kill trainer-1"]
    job_services.rehearse(actor=personas.developer, job_id=job.pk, rehearsal={"kill": None})
    reconciler.reconcile(job.pk, clock=lambda: start + timedelta(seconds=60))
    assert len([call for call in backend.calls if call.startswith("kill")]) == 1
