"""Pauses as a service: the state, the message of the job, and what the sweep repeats."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from jobs.backends.base import AttemptRef
from jobs.lifecycle.pauses import Pause
from jobs.lifecycle.states import JobState
from jobs.messages import pauses as messages
from jobs.models import Attempt, Job, JobEvent
from jobs.reconcile import pausing as bringing_about
from jobs.reconcile.pausing import EVERY, PauseWatch
from jobs.reconcile.reconciler import reconcile
from jobs.services import pausing
from portal.common.clock import now
from portal.common.errors import Conflict, Forbidden
from rbac.models import AuditEntry
from tests.jobs.fakes import ObedientBackend
from tests.jobs.services.test_inspection import running
from tests.personas import Personas

pytestmark = pytest.mark.django_db
Submit = Callable[..., Job]
Asked = list[tuple[list[str], bool]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """The replicas that were asked, and whether to stop. Their agents do it at once."""
    found: Asked = []

    def ask(ref: AttemptRef, names: list[str], pause: Pause, seconds: float) -> bool:
        found.append((sorted(names), pause.on))
        return True

    monkeypatch.setattr(pausing, "bring_about_now", lambda job, s: bringing_about.bring_about_now(job, s, ask))
    return found


@pytest.fixture
def job(submit: Submit, backend: ObedientBackend) -> Job:
    job = submit()
    reconcile(job.pk)
    running(job)
    Attempt.objects.get(job=job).replicas.update(state="registered", started=now(), registered=now())
    return job


def stored(job: Job) -> Pause:
    found = Pause.from_json(Attempt.objects.get(job=job).pause)
    assert found is not None
    return found


def why(job: Job) -> str:
    return Job.objects.get(pk=job.pk).why


def test_a_pause_stops_trainers_and_the_masters_clock_and_is_the_jobs_message(
    job: Job, asked: Asked, personas: Personas
) -> None:
    paused = pausing.pause(actor=personas.developer, job_id=job.pk)
    assert [(set(names) >= {"master-0", "trainer-0"}, on) for names, on in asked] == [(True, True)]
    assert not any(name.startswith("pserver") for name in asked[0][0])
    assert (paused.state, stored(job).done) == (JobState.RUNNING, True)
    assert why(job) == messages.PAUSED_STEPS(name=personas.developer.username)
    pausing.resume(actor=personas.developer, job_id=job.pk)
    assert (asked[-1][1], stored(job).on, stored(job).done) == (False, False, True)
    assert why(job).startswith("Training with")
    kinds = JobEvent.objects.filter(kind__in=("pause", "resume")).order_by("id").values_list("kind", flat=True)
    actions = AuditEntry.objects.filter(action__in=("job.pause", "job.resume")).count()
    assert (list(kinds), actions) == (["pause", "resume"], 2)


def test_a_repeated_request_changes_nothing(job: Job, asked: Asked, personas: Personas) -> None:
    pausing.pause(actor=personas.developer, job_id=job.pk)
    before = stored(job)
    pausing.pause(actor=personas.developer, job_id=job.pk)
    assert stored(job) == before
    for _ in range(2):
        pausing.resume(actor=personas.developer, job_id=job.pk)
    assert JobEvent.objects.filter(kind__in=("pause", "resume")).count() == 2


def test_a_job_that_does_not_run_is_not_paused(submit: Submit, personas: Personas) -> None:
    with pytest.raises(Conflict):
        pausing.pause(actor=personas.developer, job_id=submit().pk)


def test_who_only_reads_cannot_pause(job: Job, personas: Personas) -> None:
    with pytest.raises(Forbidden):
        pausing.pause(actor=personas.viewer, job_id=job.pk)


def test_the_timeout_is_extended_by_the_time_of_the_pause(job: Job, asked: Asked, personas: Personas) -> None:
    pausing.pause(actor=personas.developer, job_id=job.pk)
    attempt = Attempt.objects.get(job=job)
    began = now() - timedelta(hours=3)
    attempt.created, attempt.pause = began, {**(attempt.pause or {}), "since": began.timestamp()}
    attempt.save()
    assert reconcile(job.pk) is JobState.RUNNING
    pausing.resume(actor=personas.developer, job_id=job.pk)
    assert reconcile(job.pk) is JobState.RUNNING
    assert 3 * 3600 - 60 < stored(job).spent < 3 * 3600 + 60


# --- The sweep -------------------------------------------------------------------------------------------------------
class AtOnce:
    """An executor that runs what it is given at once."""

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Any:
        from concurrent.futures import Future

        done: Future[Any] = Future()
        done.set_result(fn(*args))
        return done


def test_the_sweep_goes_on_until_all_stand_and_asks_replicas_that_start_later(
    job: Job, personas: Personas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pausing, "bring_about_now", lambda job, seconds: None)
    pausing.pause(actor=personas.developer, job_id=job.pk)
    reconcile(job.pk)
    assert (stored(job).done, why(job)) == (False, messages.PAUSING(name=personas.developer.username))
    answers = iter([False, True, True, True])
    watch = PauseWatch(lambda *_: next(answers), AtOnce())  # type: ignore[arg-type]
    seen = []
    for turn in range(4):
        watch.when_due(now() + turn * EVERY)
        seen.append(stored(job).done)
    assert seen == [False, False, True, True]
    assert why(job) == messages.PAUSED_STEPS(name=personas.developer.username)


def test_a_result_for_an_earlier_request_is_dropped(
    job: Job, personas: Personas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pausing, "bring_about_now", lambda job, seconds: None)
    pausing.pause(actor=personas.developer, job_id=job.pk)

    def ask(*_: Any) -> bool:
        pausing.resume(actor=personas.developer, job_id=job.pk)
        return True

    bringing_about.bring_about_now(job.pk, 1.0, ask)
    assert (stored(job).on, stored(job).done) == (False, False)
