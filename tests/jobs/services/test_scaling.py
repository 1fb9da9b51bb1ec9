"""Desired number of replicas of a job."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from jobs.lifecycle.states import JobState
from jobs.messages import jobs as job_messages
from jobs.models import Job, JobEvent, Replica
from jobs.reconcile import reconciler
from jobs.services import jobs as job_services
from jobs.services import scaling
from portal.common.clock import now as wall_clock
from portal.common.errors import Conflict, QuotaExceeded, ValidationFailed
from quota import messages as quota_messages
from quota.models import Limit, Reservation
from rbac.models import AuditEntry
from runtime.messages import paragraph
from runtime.messages import training as training_messages
from tests.jobs.fakes import ObedientBackend
from tests.messages import pattern
from tests.personas import Personas

pytestmark = pytest.mark.django_db
Submit = Callable[..., Job]


_WHOLE, _FROM_1_TO_256 = quota_messages.NOT_A_WHOLE_NUMBER(), job_messages.NUMBER_OUT_OF_RANGE(least=1, most=256)
SCALABLE = {"trainer": {"replicas": 2, "min": 2, "max": 4, "memory": "512Mi"}}


def test_a_request_for_more_reserves_the_quota_at_once_and_is_recorded(
    backend: ObedientBackend, submit: Submit, personas: Personas
) -> None:
    job = submit(roles=SCALABLE)
    reconciler.reconcile(job.pk)
    scaling.scale_job(actor=personas.developer, job_id=job.pk, desired={"trainer": 4})
    assert Reservation.objects.get(job=job.pk).amounts["cpu"] == 0.5 + 1 + 4
    event = JobEvent.objects.get(job=job, kind="scaled")
    assert (event.text, event.attempt) == (
        job_messages.SCALED(before=2, replicas=training_messages.TRAINER_COUNT(count=4), name="developer"),
        1,
    )
    entry = AuditEntry.objects.get(action="job.scale")
    assert (entry.actor, entry.detail) == (personas.developer, {"role": "trainer", "before": 2, "after": 4})
    scaling.scale_job(actor=personas.developer, job_id=job.pk, desired={"trainer": 4})
    assert JobEvent.objects.filter(job=job, kind="scaled").count() == 1


def test_a_number_beyond_the_quota_changes_nothing(
    backend: ObedientBackend, submit: Submit, personas: Personas
) -> None:
    Limit.objects.create(namespace=personas.namespace, resource="cpu", amount=8)
    job, other = submit(roles=SCALABLE), submit(roles=SCALABLE)
    reconciler.reconcile(job.pk)
    reconciler.reconcile(other.pk)
    with pytest.raises(
        QuotaExceeded,
        match=pattern(
            quota_messages.NAMESPACE_QUOTA_SHORT,
            needed=quota_messages.AMOUNT_OF_CPU(amount="5.5"),
            free="4.5",
            limit="8",
            namespace="team",
            held="3.5",
        ),
    ):
        scaling.scale_job(actor=personas.developer, job_id=job.pk, desired={"trainer": 4})
    job.refresh_from_db()
    assert (job.trainers, Reservation.objects.get(job=job.pk).amounts["cpu"]) == (None, 3.5)


def test_fewer_fit_even_where_the_limit_was_lowered(
    backend: ObedientBackend, submit: Submit, personas: Personas
) -> None:
    job = submit(roles={"trainer": {**SCALABLE["trainer"], "replicas": 4}})
    reconciler.reconcile(job.pk)
    Limit.objects.create(namespace=personas.namespace, resource="cpu", amount=1)
    scaling.scale_job(actor=personas.developer, job_id=job.pk, desired={"trainer": 2})
    assert Reservation.objects.get(job=job.pk).amounts["cpu"] == 3.5


@pytest.mark.parametrize(
    ("desired", "message"),
    [
        (None, job_messages.REPLICA_COUNTS_MISSING()),
        ({}, job_messages.REPLICA_COUNTS_MISSING()),
        ({"master": 2}, job_messages.REPLICA_COUNTS_MISSING()),
        ({"trainer": "4"}, quota_messages.NOT_A_WHOLE_NUMBER()),
        ({"trainer": True}, quota_messages.NOT_A_WHOLE_NUMBER()),
        ({"trainer": 1}, job_messages.TRAINER_COUNT_FIXED(allowed=job_messages.TIME_RANGE(least=2, most=4), count=1)),
        ({"trainer": 5}, job_messages.TRAINER_COUNT_FIXED(allowed=job_messages.TIME_RANGE(least=2, most=4), count=5)),
    ],
)
def test_an_invalid_number_is_explained(submit: Submit, personas: Personas, desired: object, message: str) -> None:
    job = submit(roles=SCALABLE)
    with pytest.raises(ValidationFailed) as refused:
        scaling.scale_job(actor=personas.developer, job_id=job.pk, desired=desired)
    assert refused.value.errors == {"trainer": [message]}


@pytest.mark.parametrize(
    ("number", "message"),
    [(0, _FROM_1_TO_256), (257, _FROM_1_TO_256), ("2", _WHOLE)],
)
def test_a_number_of_parameter_servers_that_cannot_be_is_explained(
    submit: Submit, personas: Personas, number: object, message: str
) -> None:
    with pytest.raises(ValidationFailed) as refused:
        scaling.scale_job(actor=personas.developer, job_id=submit().pk, desired={"pserver": number})
    assert refused.value.errors == {"pserver": [message]}


def test_the_desired_number_of_parameter_servers_applies_to_the_next_attempt(
    backend: ObedientBackend, submit: Submit, personas: Personas
) -> None:
    job = submit(roles=SCALABLE)
    reconciler.reconcile(job.pk)
    scaling.scale_job(actor=personas.developer, job_id=job.pk, desired={"pserver": 3})
    scaling.scale_job(actor=personas.developer, job_id=job.pk, desired={"trainer": 3})
    assert Reservation.objects.get(job=job.pk, attempt=1).amounts["cpu"] == 0.5 + 1 + 3, "held for what runs now"
    event = JobEvent.objects.filter(job=job, kind="scaled").order_by("id").first()
    assert event is not None
    assert event.text == (
        paragraph(
            job_messages.SCALED(before=1, replicas=job_messages.PSERVER_COUNT(count=3), name="developer"),
            job_messages.SCALING_TAKES_EFFECT_LATER(),
        )
    )
    job_services.cancel_job(actor=personas.developer, job_id=job.pk)
    reconciler.reconcile(job.pk)
    reconciler.reconcile(job.pk, clock=lambda: wall_clock() + timedelta(minutes=1))
    job_services.retry_job(actor=personas.developer, job_id=job.pk)
    reconciler.reconcile(job.pk)
    servers = Replica.objects.filter(role="pserver").values_list("attempt__number", "name").order_by("id")
    assert list(servers) == [(1, "pserver-0"), *((2, f"pserver-{index}") for index in range(3))]
    assert Reservation.objects.get(job=job.pk, attempt=2).amounts["cpu"] == 0.5 + 3 + 3


def test_an_attempt_is_launched_with_the_parameter_servers_that_it_was_admitted_with(
    backend: ObedientBackend, submit: Submit, personas: Personas
) -> None:
    job = submit(roles=SCALABLE)
    reconciler.reconcile(job.pk, rest=frozenset({JobState.BUILDING}))
    scaling.scale_job(actor=personas.developer, job_id=job.pk, desired={"pserver": 2})
    reconciler.reconcile(job.pk)
    (plan,) = backend.plans.values()
    assert [one.name for one in plan.replicas if one.role == "pserver"] == ["pserver-0"]
    assert {one.environment["REGATTA_PSERVERS"] for one in plan.replicas} == {"1"}


def test_a_job_that_failed_can_go_on_with_more_parameter_servers(
    backend: ObedientBackend, submit: Submit, personas: Personas
) -> None:
    job = submit(roles=SCALABLE)
    job_services.cancel_job(actor=personas.developer, job_id=job.pk)
    reconciler.reconcile(job.pk)
    assert scaling.scale_job(actor=personas.developer, job_id=job.pk, desired={"pserver": 2}).pservers == 2


def test_more_parameter_servers_than_the_quota_can_ever_hold_are_refused(
    backend: ObedientBackend, submit: Submit, personas: Personas
) -> None:
    Limit.objects.create(namespace=personas.namespace, resource="cpu", amount=4)
    job = submit(roles=SCALABLE)
    with pytest.raises(QuotaExceeded, match=pattern(quota_messages.NAMESPACE_LIMIT_TOO_LOW, namespace="team")):
        scaling.scale_job(actor=personas.developer, job_id=job.pk, desired={"pserver": 8})
    job.refresh_from_db()
    assert job.pservers is None


def test_a_job_that_waits_is_scaled_before_it_starts(
    backend: ObedientBackend, submit: Submit, personas: Personas
) -> None:
    job = submit(roles=SCALABLE)
    scaling.scale_job(actor=personas.developer, job_id=job.pk, desired={"trainer": 3})
    reconciler.reconcile(job.pk)
    assert Replica.objects.filter(role="trainer").count() == 3


def test_a_job_that_has_ended_is_not_scaled(submit: Submit, personas: Personas) -> None:
    job = submit(roles=SCALABLE)
    job_services.cancel_job(actor=personas.developer, job_id=job.pk)
    reconciler.reconcile(job.pk)
    with pytest.raises(Conflict, match=pattern(job_messages.JOB_NOT_SCALABLE, state="CANCELLED")):
        scaling.scale_job(actor=personas.developer, job_id=job.pk, desired={"trainer": 3})
