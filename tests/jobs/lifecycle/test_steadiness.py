"""Running jobs that a sweep skips, and jobs that it must not skip because they have changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from jobs.backends.base import AttemptView, Phase, ReplicaView
from jobs.lifecycle.states import JobState, ReplicaState
from jobs.lifecycle.steadiness import AT_LEAST_EVERY, Reading, ReplicaReading, Watch, is_steady
from jobs.models import Job, Replica
from jobs.reconcile import sweep as reconcile_sweep
from jobs.services import jobs as job_services
from jobs.services import scaling
from portal.common.clock import now
from quota.models import Reservation
from tests.jobs.fakes import ObedientBackend
from tests.jobs.reconcile.test_reconciler import ROLES, Submit, report, running
from tests.personas import Personas

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
JOB = UUID(int=7)


# --- Pure ------------------------------------------------------------------------------------------------------------
def row(name: str = "trainer-0", state: str = ReplicaState.REGISTERED, **fields: object) -> ReplicaReading:
    usual = {"start_number": 1, "dismissed": False, "rehearsed": False, "why": "", **fields}
    return ReplicaReading(name, state, **usual)  # type: ignore[arg-type]


def seen(name: str = "trainer-0", phase: Phase = Phase.RUNNING, **fields: object) -> ReplicaView:
    return ReplicaView(name, phase, **fields)  # type: ignore[arg-type]


STEADY = Reading(JobState.RUNNING, 3, True, (row(),), AttemptView(False, (seen(),)))


def test_a_job_whose_replicas_are_registered_and_observed_is_steady() -> None:
    assert is_steady(STEADY)


def test_a_replica_that_left_on_purpose_disturbs_nothing() -> None:
    left = row("trainer-1", ReplicaState.EXITED, dismissed=True)
    gone = AttemptView(False, (seen(), seen("trainer-1", Phase.EXITED)))
    assert is_steady(replace(STEADY, replicas=(row(), left), view=gone))


RESTLESS = {
    "another state": replace(STEADY, state=JobState.STOPPING),
    "somebody asks for something": replace(STEADY, quiet=False),
    "the backend did not answer": replace(STEADY, view=None),
    "the backend no longer has a record of it": replace(STEADY, view=AttemptView(True)),
    "not registered yet": replace(STEADY, replicas=(row(state=ReplicaState.STARTING),)),
    "ended": replace(STEADY, replicas=(row(state=ReplicaState.EXITED),)),
    "seen ended": replace(STEADY, view=AttemptView(False, (seen(phase=Phase.EXITED, code=0),))),
    "seen lost": replace(STEADY, view=AttemptView(False, (seen(phase=Phase.LOST),))),
    "not there": replace(STEADY, view=AttemptView(False, ())),
    "of an earlier restart": replace(STEADY, replicas=(row(start_number=2),)),
    "to be killed": replace(STEADY, replicas=(row(rehearsed=True),)),
    "dismissed and still there": replace(STEADY, replicas=(row(dismissed=True),)),
    "unknown to the portal": replace(STEADY, view=AttemptView(False, (seen(), seen("trainer-1")))),
}


@pytest.mark.parametrize("reading", RESTLESS.values(), ids=list(RESTLESS))
def test_a_job_that_waits_for_time_or_for_the_backend_is_not_steady(reading: Reading) -> None:
    watch = Watch()
    assert not is_steady(reading)
    watch.reconciled(JOB, reading, MOMENT, lambda: None)
    assert not watch.skips(JOB, reading, MOMENT)


def test_a_job_is_skipped_after_it_was_reconciled_and_while_its_reading_is_the_same() -> None:
    watch = Watch()
    assert not watch.skips(JOB, STEADY, MOMENT)
    watch.reconciled(JOB, STEADY, MOMENT, lambda: None)
    assert watch.skips(JOB, STEADY, MOMENT)
    assert not watch.skips(JOB, replace(STEADY, revision=4), MOMENT)


def test_it_is_skipped_no_longer_than_its_timeout_lasts() -> None:
    watch = Watch()
    end = MOMENT + timedelta(seconds=5)
    watch.reconciled(JOB, STEADY, MOMENT, lambda: end)
    assert watch.skips(JOB, STEADY, end - timedelta(seconds=1))
    assert not watch.skips(JOB, STEADY, end)


def test_a_steady_job_is_reconciled_at_intervals() -> None:
    watch = Watch()
    watch.reconciled(JOB, STEADY, MOMENT, lambda: None)
    assert not watch.skips(JOB, STEADY, MOMENT + 1.5 * AT_LEAST_EVERY)


def test_a_job_that_is_not_active_any_more_is_forgotten() -> None:
    watch = Watch()
    watch.reconciled(JOB, STEADY, MOMENT, lambda: None)
    watch.keep_only([])
    assert not watch.skips(JOB, STEADY, MOMENT)


# --- Sweeps ----------------------------------------------------------------------------------------------------------
Sweep = Callable[[], int]


def steady(submit: Submit, backend: ObedientBackend, **fields: object) -> Job:
    job = running(submit, **fields)
    for attempt, views in backend.views.items():
        for name in views:
            backend.becomes(attempt, name, Phase.RUNNING)
    return job


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def sweep(watch: Watch) -> Sweep:
    """Return a function that runs the sweep of one process."""
    return lambda: reconcile_sweep.sweep(now(), watch)


@pytest.mark.invariant("A sweep over steady jobs takes five queries, however many jobs there are.")
@pytest.mark.django_db
@pytest.mark.parametrize("jobs", [1, 3])
def test_a_sweep_over_steady_jobs_costs_five_queries_however_many_they_are(
    backend: ObedientBackend, submit: Submit, sweep: Sweep, jobs: int
) -> None:
    for _ in range(jobs):
        steady(submit, backend)
    sweep()
    sweep()
    with CaptureQueriesContext(connection) as queries:
        assert sweep() == jobs
    assert len(queries) == 5


@pytest.mark.django_db
def test_only_the_job_that_changed_is_reconciled(
    backend: ObedientBackend, submit: Submit, sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [steady(submit, backend) for _ in range(3)]
    sweep()
    sweep()
    looked_at: list[object] = []
    monkeypatch.setattr(reconcile_sweep, "reconcile", lambda job_id, **_: looked_at.append(job_id))
    report(jobs[1], "trainer-0", "exited", code=3)
    sweep()
    assert looked_at == [jobs[1].pk]


def _fails(job: Job, backend: ObedientBackend, people: Personas) -> None:
    report(job, "trainer-0", "exited", code=3)


def _ends_unreported(job: Job, backend: ObedientBackend, people: Personas) -> None:
    backend.becomes(next(iter(backend.views)), "trainer-0", Phase.EXITED, code=3)


def _is_cancelled(job: Job, backend: ObedientBackend, people: Personas) -> None:
    job_services.cancel_job(actor=people.developer, job_id=job.pk)


def _is_recalled(job: Job, backend: ObedientBackend, people: Personas) -> None:
    Reservation.objects.filter(job=job.pk).update(recalled=now(), recalled_why="It was lent.")


@pytest.mark.invariant("A sweep acts on each change of a steady job at its next run.")
@pytest.mark.django_db
@pytest.mark.parametrize("happens", [_fails, _ends_unreported, _is_cancelled, _is_recalled])
def test_what_happens_to_a_steady_job_is_acted_on_by_the_next_sweep(
    backend: ObedientBackend,
    submit: Submit,
    personas: Personas,
    sweep: Sweep,
    happens: Callable[[Job, ObedientBackend, Personas], None],
) -> None:
    job = steady(submit, backend)
    sweep()
    sweep()
    happens(job, backend, personas)
    sweep()
    job.refresh_from_db()
    assert job.state != JobState.RUNNING


@pytest.mark.django_db
def test_more_trainers_are_started_by_the_next_sweep(
    backend: ObedientBackend, submit: Submit, personas: Personas, sweep: Sweep
) -> None:
    job = steady(submit, backend, roles=ROLES)
    sweep()
    sweep()
    scaling.scale_job(actor=personas.developer, job_id=job.pk, desired={"trainer": 3})
    sweep()
    assert Replica.objects.filter(name="trainer-2").exists()
    assert "scale to 3" in backend.calls


@pytest.mark.django_db
def test_a_timeout_ends_a_steady_job(backend: ObedientBackend, submit: Submit, watch: Watch) -> None:
    job = steady(submit, backend)
    for seconds in (0, 1, 2):
        reconcile_sweep.sweep(now() + timedelta(seconds=seconds), watch)
    reconcile_sweep.sweep(now() + timedelta(days=3000), watch)
    job.refresh_from_db()
    assert job.reason == "deadline"
