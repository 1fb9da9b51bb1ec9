"""Two writers of one job, interleaved between the read and the write of one of them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from jobs.backends.base import AttemptRef, AttemptView, Phase
from jobs.builds import code_snapshots
from jobs.ingest.payloads import Report
from jobs.lifecycle.states import JobState
from jobs.models import Attempt, Job, JobEvent, Replica, Transition
from jobs.reconcile import reconciler
from jobs.selectors import specifications
from jobs.services import jobs as job_services
from jobs.services import replica_reports, scaling
from jobs.streams import store
from portal.common.clock import now
from quota.models import Claim, Limit, Reservation
from tests.jobs.conftest import SPEC, Use
from tests.jobs.fakes import ObedientBackend
from tests.personas import Personas

pytestmark = pytest.mark.django_db
Submit = Callable[..., Job]
REPLICAS = ("master-0", "pserver-0", "trainer-0", "trainer-1")


def nothing() -> None: ...


class OutdatedBackend(ObedientBackend):
    """Backend with an outdated view: ``meanwhile`` is called once, after the observation and before the return."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], object] = nothing

    def observe(self, ref: AttemptRef) -> AttemptView:
        seen = super().observe(ref)
        meanwhile, self.meanwhile = self.meanwhile, nothing
        meanwhile()
        return seen


@pytest.fixture
def outdated(use: Use) -> OutdatedBackend:
    backend = OutdatedBackend()
    use(backend)
    return backend


def after_loading(meanwhile: Callable[[], object]) -> Callable[[], datetime]:
    """Return a clock that calls ``meanwhile`` at its first reading, which follows the loading of the job."""
    pending = [meanwhile]

    def clock() -> datetime:
        while pending:
            pending.pop()()
        return now()

    return clock


def report(job: Job, replica: str, phase: str, **fields: object) -> None:
    job.refresh_from_db()
    attempt = Attempt.objects.get(job=job, number=job.attempt)
    content = {"code": None, "signal": None, "out_of_memory": False, "why": "", **fields}
    replica_reports.record_report(attempt, Report(replica=replica, phase=phase, **content))


def running(submit: Submit, **fields: object) -> Job:
    job = submit(**fields)
    reconciler.reconcile(job.pk)
    for replica in REPLICAS:
        report(job, replica, "registered")
    assert reconciler.reconcile(job.pk) is JobState.RUNNING
    job.refresh_from_db()
    return job


def test_of_two_reconcilers_that_loaded_a_lost_replica_one_starts_it_again(
    outdated: OutdatedBackend, submit: Submit
) -> None:
    job = running(submit)
    [attempt] = outdated.views
    outdated.becomes(attempt, "trainer-1", Phase.LOST, why="it is gone")
    reconciler.reconcile(job.pk)
    Replica.objects.filter(name="trainer-1").update(finished=now() - timedelta(seconds=60))
    outdated.meanwhile = lambda: reconciler.reconcile(job.pk)
    reconciler.reconcile(job.pk)
    row = Replica.objects.get(name="trainer-1")
    assert (row.start_number, row.restarts) == (2, 1)
    assert JobEvent.objects.filter(job=job, kind="restarted").count() == 1
    assert outdated.calls.count("restart trainer-1 as 2") == 1


def test_of_two_reconcilers_that_loaded_a_rehearsal_one_kills(
    outdated: OutdatedBackend, submit: Submit, personas: Personas
) -> None:
    job = running(submit)
    job_services.rehearse(actor=personas.developer, job_id=job.pk, rehearsal={"kill": "master", "every": "5s"})
    due = now() + timedelta(seconds=6)
    outdated.meanwhile = lambda: reconciler.reconcile(job.pk, clock=lambda: due)
    reconciler.reconcile(job.pk, clock=lambda: due)
    assert outdated.calls.count("kill master-0") == 1


def test_a_job_cancelled_between_load_and_reservation_holds_nothing(
    backend: ObedientBackend, submit: Submit, personas: Personas
) -> None:
    job = submit()

    def cancel() -> None:
        job_services.cancel_job(actor=personas.developer, job_id=job.pk)
        reconciler.reconcile(job.pk)

    assert reconciler.reconcile(job.pk, clock=after_loading(cancel)) is JobState.CANCELLED
    assert not Reservation.objects.exists()
    assert not Claim.objects.exists()
    assert not Attempt.objects.exists()


def test_a_job_cancelled_while_it_waits_leaves_the_queue(
    backend: ObedientBackend, submit: Submit, personas: Personas
) -> None:
    Limit.objects.create(namespace=personas.namespace, resource="jobs", amount=1)
    running(submit)
    waiting = submit()
    assert reconciler.reconcile(waiting.pk) is JobState.QUEUED
    assert Claim.objects.count() == 1
    job_services.cancel_job(actor=personas.developer, job_id=waiting.pk)
    reconciler.reconcile(waiting.pk)
    assert not Claim.objects.exists()


@pytest.mark.invariant("Of two concurrent writers of a job, neither overwrites the change of the other.")
def test_an_agents_exit_report_that_arrives_after_the_look_is_not_overwritten(
    outdated: OutdatedBackend, submit: Submit
) -> None:
    job = running(submit)
    [attempt] = outdated.views
    outdated.becomes(attempt, "trainer-1", Phase.EXITED, signal=9)
    outdated.meanwhile = lambda: report(job, "trainer-1", "exited", code=3, why="ValueError")
    reconciler.reconcile(job.pk)
    row = Replica.objects.get(name="trainer-1")
    assert (row.code, row.signal, row.why) == (3, None, "ValueError")


def test_an_agents_registration_that_arrives_after_the_look_keeps_no_reason_for_waiting(
    outdated: OutdatedBackend, submit: Submit
) -> None:
    job = submit()
    reconciler.reconcile(job.pk)
    [attempt] = outdated.views
    Replica.objects.filter(name="trainer-1").update(state="starting")
    outdated.becomes(attempt, "trainer-1", Phase.STARTING, why="its image is being pulled")
    outdated.meanwhile = lambda: report(job, "trainer-1", "registered")
    reconciler.reconcile(job.pk)
    row = Replica.objects.get(name="trainer-1")
    assert (row.state, row.why) == ("registered", "")


@pytest.mark.invariant("A job's state changes only by compare-and-set on its revision.")
def test_of_two_reconcilers_that_loaded_one_state_the_second_looks_again(
    backend: ObedientBackend, submit: Submit
) -> None:
    job = submit()
    reconciler.reconcile(job.pk, clock=after_loading(lambda: reconciler.reconcile(job.pk)))
    states = list(Transition.objects.filter(job=job).order_by("id").values_list("state", flat=True))
    assert states == ["QUEUED", "ADMITTED", "BUILDING", "LAUNCHING", "REGISTERING"]
    assert Reservation.objects.count() == 1


def test_a_retry_of_a_person_opens_the_streams_for_the_next_attempt(
    backend: ObedientBackend, submit: Submit, personas: Personas
) -> None:
    job = running(submit)
    attempt = Attempt.objects.get(job=job, number=1)
    store.append_logs(
        job_id=job.pk, attempt=attempt, replica="trainer-1", first=1, lines=[(1.0, "stdout", "of the first attempt")]
    )
    report(job, "trainer-1", "exited", code=3)
    reconciler.reconcile(job.pk)
    assert reconciler.reconcile(job.pk) is JobState.FAILED
    assert store.head(job.pk, "logs").closed
    job_services.retry_job(actor=personas.developer, job_id=job.pk)
    assert not store.head(job.pk, "logs").closed


@pytest.mark.invariant("Of two concurrent writers of a job, neither overwrites the change of the other.")
def test_what_a_person_scales_while_a_loss_is_handled_is_not_lost(
    outdated: OutdatedBackend, submit: Submit, personas: Personas
) -> None:
    roles = {"trainer": {"replicas": 2, "min": 1, "max": 5, "memory": "512Mi"}}
    job = running(submit, roles=roles)
    outdated.meanwhile = lambda: scaling.scale_job(actor=personas.developer, job_id=job.pk, desired={"trainer": 3})
    reconciler.reconcile(job.pk)
    assert reconciler.reconcile(job.pk) is JobState.RUNNING
    assert Replica.objects.filter(role="trainer", dismissed=False).count() == 3


def test_a_submission_that_comes_twice_at_once_makes_one_job(
    personas: Personas, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = code_snapshots.keep
    wanted = {
        "actor": personas.developer,
        "namespace": "team",
        "spec": specifications.parse(SPEC),
        "idempotency_key": "k",
    }
    others: list[job_services.Submitted] = []

    def keep_after_the_other(code: code_snapshots.Packed) -> None:
        """Complete the other request between this one's search for an earlier job and its own row."""
        monkeypatch.setattr(code_snapshots, "keep", keep)
        others.append(job_services.submit_job(**wanted))
        keep(code)

    monkeypatch.setattr(code_snapshots, "keep", keep_after_the_other)
    mine = job_services.submit_job(**wanted)
    assert (mine.job, mine.created, others[0].created) == (others[0].job, False, True)
    assert Job.objects.count() == 1
