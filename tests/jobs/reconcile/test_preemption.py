"""Preemption: a job on borrowed capacity stops when the lender needs it, and waits again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from jobs.lifecycle.states import JobState
from jobs.models import Job, Transition
from jobs.reconcile import reconciler
from jobs.reconcile.sweep import sweep
from portal.common.clock import now
from quota import messages
from quota.models import Capacity, Claim, Limit, Reservation
from rbac.models import Namespace
from tests.factories import make_job, make_user
from tests.jobs.fakes import ObedientBackend

Submit = Callable[..., Job]


@pytest.fixture
def borrower(backend: ObedientBackend, submit: Submit, settings) -> Job:
    """A job of ``team`` that has run for an hour on cores lent by ``elsewhere``."""
    settings.PREEMPTION_GRACE_SECONDS = 20
    settings.DEFAULT_QUOTA = {"cpu": 100}
    Capacity.objects.create(resource="cpu", amount=5)
    team = Namespace.objects.get(name="team")
    Limit.objects.create(namespace=team, resource="cpu", amount=0, borrow=10)
    job = submit()
    assert reconciler.reconcile(job.pk) is JobState.REGISTERING
    Reservation.objects.update(created=now() - timedelta(hours=1))
    return job


def owner_waits(like: Job) -> Job:
    return make_job(
        Namespace.objects.get(name="elsewhere"),
        make_user("owen"),
        spec=like.spec,
        digest=like.snapshot_id,
        changed=now(),
    )


def sweeps() -> None:
    """Sweep before and after the time limit for the final reports of replicas."""
    for seconds in (0, 1, 2, 13, 14, 15):
        sweep(now() + timedelta(seconds=seconds))


def test_it_is_stopped_with_time_for_a_checkpoint_and_waits_again(borrower: Job, backend: ObedientBackend) -> None:
    owner = owner_waits(borrower)
    sweeps()
    borrower.refresh_from_db()
    owner.refresh_from_db()
    assert (borrower.state, borrower.attempt, borrower.requeues) == ("QUEUED", 2, {"preempted": 1})
    assert owner.state != "QUEUED"
    assert max(backend.graces) == timedelta(seconds=20)
    message = Transition.objects.get(job=borrower, state="STOPPING").why
    assert message == messages.CAPACITY_RECLAIMED_BY(namespace="elsewhere")


def test_it_explains_its_wait_and_does_not_take_the_capacity_back(borrower: Job) -> None:
    owner = owner_waits(borrower)
    sweeps()
    borrower.refresh_from_db()
    owner.refresh_from_db()
    assert borrower.why.startswith("Waiting for quota. The job needs 3.5 CPU; 1.5 of 5 are free on the platform")
    assert (owner.state, owner.attempt, Claim.objects.get().job) == ("REGISTERING", 1, borrower.pk)
