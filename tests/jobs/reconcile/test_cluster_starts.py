"""Reconciler with a cluster that replaced lost replicas while the portal had no database."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pytest_django import Settings

from jobs.backends.base import Phase
from jobs.lifecycle.cluster_starts import adoptions
from jobs.lifecycle.states import JobState, ReplicaState
from jobs.models import Attempt, Job, JobEvent, Replica
from jobs.reconcile import cluster_starts, reconciler
from portal.common.clock import now
from portal.common.errors import Unavailable
from tests.jobs.conftest import Use
from tests.jobs.fakes import IndependentBackend
from tests.jobs.reconcile.test_reconciler import report, running

pytestmark = pytest.mark.django_db
Submit = Callable[..., Job]


@pytest.fixture
def backend(use: Use) -> IndependentBackend:
    fake = IndependentBackend()
    use(fake)
    return fake


def replaced(backend: IndependentBackend, name: str = "trainer-1", start_number: int = 2) -> None:
    """Let the cluster replace the replica."""
    backend.becomes(next(iter(backend.views)), name, Phase.RUNNING, start_number=start_number)


def row(name: str = "trainer-1") -> Replica:
    return Replica.objects.get(name=name)


def events(job: Job) -> list[str]:
    return list(JobEvent.objects.filter(job=job, kind="restarted").values_list("text", flat=True))


def test_a_running_job_gets_starts_in_advance_once(backend: IndependentBackend, submit: Submit) -> None:
    job = running(submit)
    assert backend.limits == {"master-0": 3, "pserver-0": 3, "trainer-0": 3, "trainer-1": 3}
    reconciler.reconcile(job.pk)
    assert [call for call in backend.calls if call.startswith("grant")] == [f"grant {backend.limits}"]


def test_without_spare_starts_nothing_is_granted(
    backend: IndependentBackend, submit: Submit, settings: Settings
) -> None:
    settings.SPARE_STARTS = 0
    running(submit)
    assert not any(call.startswith("grant") for call in backend.calls)


def test_a_job_that_registers_has_no_starts_in_advance(backend: IndependentBackend, submit: Submit) -> None:
    assert reconciler.reconcile(submit().pk) is JobState.REGISTERING
    assert backend.limits == {}


@pytest.mark.invariant("The portal adopts a start that the cluster made, once, and counts it as a restart.")
def test_a_start_of_the_cluster_is_adopted(backend: IndependentBackend, submit: Submit) -> None:
    job = running(submit)
    replaced(backend)
    assert reconciler.reconcile(job.pk) is JobState.RUNNING
    assert (row().start_number, row().restarts, row().state) == (2, 1, ReplicaState.WAITING)
    assert events(job) == ["trainer-1 is gone; replaced by the cluster without the portal (1 of 3)."]
    assert not any(call.startswith("restart") for call in backend.calls)


def test_an_adoption_is_not_repeated(backend: IndependentBackend, submit: Submit) -> None:
    job = running(submit)
    replaced(backend)
    for _ in range(3):
        reconciler.reconcile(job.pk)
    assert (row().restarts, len(events(job))) == (1, 1)


def test_the_grant_follows_the_adopted_start(backend: IndependentBackend, submit: Submit) -> None:
    job = running(submit)
    replaced(backend, start_number=3)
    reconciler.reconcile(job.pk)
    assert (row().restarts, backend.limits["trainer-1"]) == (2, 4)


def test_the_adopted_start_reports_and_trains(backend: IndependentBackend, submit: Submit) -> None:
    job = running(submit)
    replaced(backend)
    reconciler.reconcile(job.pk)
    report(job, "trainer-1", "registered", start_number=2)
    assert reconciler.reconcile(job.pk) is JobState.RUNNING
    assert row().state == ReplicaState.REGISTERED


def test_a_report_before_the_adoption_is_tried_again(backend: IndependentBackend, submit: Submit) -> None:
    job = running(submit)
    with pytest.raises(Unavailable) as refused:
        report(job, "trainer-1", "registered", start_number=2)
    assert refused.value.code == "start_not_adopted"


def test_a_crash_during_the_adoption_leaves_nothing_and_the_next_turn_adopts(
    backend: IndependentBackend, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = running(submit)
    replaced(backend)
    with monkeypatch.context() as broken:

        def fail(*given: Any) -> None:
            raise ConnectionError("the process was killed")

        broken.setattr(cluster_starts.effects, "publish", fail)
        with pytest.raises(ConnectionError):
            reconciler.reconcile(job.pk)
    assert (row().start_number, row().restarts, events(job)) == (1, 0, [])
    reconciler.reconcile(job.pk)
    assert (row().start_number, row().restarts, len(events(job))) == (2, 1, 1)


def test_an_adoption_of_a_job_that_another_process_changed_writes_nothing(
    backend: IndependentBackend, submit: Submit
) -> None:
    job = running(submit)
    replaced(backend)
    loaded = reconciler.load(job.pk)
    assert loaded is not None
    assert loaded.attempt is not None
    view = reconciler._observe(loaded, unlaunched=False)
    due = adoptions(loaded.view, [reconciler.replica_fact(one) for one in loaded.replicas], view)
    Job.objects.filter(pk=job.pk).update(revision=99)
    cluster_starts.adopt(loaded.job, loaded.attempt, due, now())
    assert (row().start_number, events(job)) == (1, [])


def test_a_lost_server_without_restarts_ends_the_attempt_though_the_cluster_started_it(
    backend: IndependentBackend, submit: Submit
) -> None:
    job = running(submit)
    Replica.objects.filter(name="pserver-0").update(restarts=3)
    replaced(backend, "pserver-0")
    reconciler.reconcile(job.pk)
    assert reconciler.reconcile(job.pk) is JobState.FAILED
    job.refresh_from_db()
    assert job.reason == "replica_lost"


def test_a_refused_start_of_a_trainer_that_had_succeeded_changes_only_its_number(
    backend: IndependentBackend, submit: Submit
) -> None:
    job = running(submit)
    report(job, "trainer-1", "exited", code=0)
    reconciler.reconcile(job.pk)
    replaced(backend)
    assert reconciler.reconcile(job.pk) is JobState.RUNNING
    assert (row().state, row().code, row().start_number, row().restarts) == (ReplicaState.EXITED, 0, 3, 0)
    assert Attempt.objects.count() == 1
