"""Actions of users on jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jobs.builds import code_snapshots
from jobs.lifecycle.states import JobState
from jobs.messages import jobs as messages
from jobs.models import CodeSnapshot, Job, JobEvent
from jobs.reconcile import reconciler
from jobs.selectors import jobs as job_selectors
from jobs.selectors import specifications
from jobs.services import jobs as job_services
from portal.common.errors import Conflict, Forbidden, QuotaExceeded, ValidationFailed
from quota.models import Limit
from rbac.models import AuditEntry
from tests.jobs.conftest import SPEC
from tests.jobs.fakes import ObedientBackend
from tests.messages import pattern
from tests.personas import Personas

pytestmark = pytest.mark.django_db
Submit = Callable[..., Job]


def test_a_submission_keeps_the_code_and_leaves_a_trail(submit: Submit, personas: Personas) -> None:
    job = submit()
    assert (job.state, job.attempt, job.owner) == (JobState.QUEUED, 1, personas.developer)
    assert "files" not in job.spec
    assert code_snapshots.files_of(job.snapshot) == SPEC["files"]
    assert AuditEntry.objects.filter(action="job.submit", target=str(job.pk), actor=personas.developer).exists()


def test_the_same_code_is_kept_once(submit: Submit) -> None:
    submit()
    submit(name="again")
    assert CodeSnapshot.objects.count() == 1


def test_an_archive_depends_on_the_files_alone() -> None:
    assert code_snapshots.archive({"b": "2", "a/ü": "1"}) == code_snapshots.archive({"a/ü": "1", "b": "2"})
    assert code_snapshots.unpack(code_snapshots.archive({"b": "2\r\n", "a/ü": "é"})) == {"b": "2\r\n", "a/ü": "é"}


def test_a_job_that_can_never_fit_is_refused_with_the_numbers(submit: Submit, personas: Personas) -> None:
    Limit.objects.create(namespace=personas.namespace, resource="cpu", amount=2)
    with pytest.raises(QuotaExceeded) as refused:
        submit()
    assert refused.value.extra["numbers"]["cpu"] == {"needed": 3.5, "limit": 2, "held": 0, "free": 2}
    assert Job.objects.count() == 0


def test_the_same_key_gives_the_first_job_again(personas: Personas) -> None:
    wanted = {
        "actor": personas.developer,
        "namespace": "team",
        "spec": specifications.parse(SPEC),
        "idempotency_key": "k",
    }
    first, second = job_services.submit_job(**wanted), job_services.submit_job(**wanted)
    assert (first.created, second.created) == (True, False)
    assert first.job == second.job


def test_the_same_key_for_another_job_is_a_conflict(personas: Personas) -> None:
    wanted = {"actor": personas.developer, "namespace": "team", "idempotency_key": "k"}
    job_services.submit_job(spec=specifications.parse(SPEC), **wanted)
    with pytest.raises(Conflict, match=pattern(messages.IDEMPOTENCY_KEY_REUSED)):
        job_services.submit_job(spec=specifications.parse({**SPEC, "passes": 9}), **wanted)


def test_a_key_is_known_again_after_the_specification_has_got_new_fields(personas: Personas) -> None:
    wanted = {
        "actor": personas.developer,
        "namespace": "team",
        "spec": specifications.parse(SPEC),
        "idempotency_key": "k",
    }
    job = job_services.submit_job(**wanted).job
    del job.spec["image"]
    job.save(update_fields=["spec"])
    assert job_services.submit_job(**wanted).job == job


def test_two_people_may_use_the_same_key(personas: Personas) -> None:
    wanted = {"namespace": "team", "spec": specifications.parse(SPEC), "idempotency_key": "k"}
    job_services.submit_job(actor=personas.developer, **wanted)
    assert job_services.submit_job(actor=personas.owner, **wanted).created


def test_a_preview_changes_nothing_and_returns_the_plan(personas: Personas) -> None:
    preview = job_services.preview_job(actor=personas.developer, namespace="team", spec=specifications.parse(SPEC))
    assert (preview.verdict, preview.amounts["cpu"]) == ("admitted", 3.5)
    assert [one["name"] for one in preview.replicas] == ["master-0", "pserver-0", "trainer-0", "trainer-1"]
    assert (Job.objects.count(), CodeSnapshot.objects.count()) == (0, 0)


def test_cancelling_twice_is_cancelling_once(submit: Submit, personas: Personas) -> None:
    job = submit()
    job_services.cancel_job(actor=personas.owner, job_id=job.pk)
    again = job_services.cancel_job(actor=personas.developer, job_id=job.pk)
    assert again.cancelled_by == personas.owner
    assert AuditEntry.objects.filter(action="job.cancel").count() == 1


def test_a_job_that_has_ended_cannot_be_cancelled(backend: ObedientBackend, submit: Submit, personas: Personas) -> None:
    job = submit()
    job_services.cancel_job(actor=personas.owner, job_id=job.pk)
    reconciler.reconcile(job.pk)
    with pytest.raises(Conflict, match=pattern(messages.JOB_ALREADY_ENDED)):
        job_services.cancel_job(actor=personas.owner, job_id=job.pk)


def test_a_retry_runs_the_same_job_as_its_next_attempt(
    backend: ObedientBackend, submit: Submit, personas: Personas
) -> None:
    job = submit()
    job_services.cancel_job(actor=personas.owner, job_id=job.pk)
    reconciler.reconcile(job.pk)
    again = job_services.retry_job(actor=personas.developer, job_id=job.pk)
    assert (again.pk, again.state, again.attempt, again.cancel_requested) == (job.pk, JobState.QUEUED, 2, None)
    assert reconciler.reconcile(job.pk) is JobState.REGISTERING


def test_a_job_that_has_not_ended_cannot_be_retried(submit: Submit, personas: Personas) -> None:
    with pytest.raises(Conflict, match=pattern(messages.JOB_NOT_ENDED)):
        job_services.retry_job(actor=personas.owner, job_id=submit().pk)


# --- Reading ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("jobs", [1, 6])
def test_a_list_costs_the_same_queries_however_long(
    jobs: int,
    backend: ObedientBackend,
    submit: Submit,
    personas: Personas,
    django_assert_num_queries: Callable[..., Any],
) -> None:
    Limit.objects.create(namespace=personas.namespace, resource="cpu", amount=100)
    for _ in range(jobs):
        reconciler.reconcile(submit().pk)
    with django_assert_num_queries(3):
        shown = [job_selectors.job_json(job) for job in job_selectors.jobs_for(personas.viewer)]
    assert [len(job["replicas"]) for job in shown] == [4] * jobs


# --- Rehearsing failure ----------------------------------------------------------------------------------------------
KILL_TRAINERS = {"kill": "trainer", "every": "10s"}


def test_a_rehearsal_is_stored_recorded_and_ended(backend: ObedientBackend, submit: Submit, personas: Personas) -> None:
    job = job_services.rehearse(actor=personas.developer, job_id=submit().pk, rehearsal=KILL_TRAINERS)
    kept = job_selectors.job_json(job)["rehearsal"]
    assert {**kept, "last": ""} == {"kill": "trainer", "every": "10s", "by": "developer", "last": "", "done": 0}
    for _ in range(2):
        job = job_services.rehearse(actor=personas.developer, job_id=job.pk, rehearsal={"kill": None})
    assert job_selectors.job_json(job)["rehearsal"] is None
    assert list(JobEvent.objects.filter(job=job).order_by("id").values_list("text", flat=True)) == [
        messages.REHEARSAL_STARTED(name="developer", length=messages.SECOND_COUNT(count=10), role="trainer"),
        messages.REHEARSAL_ENDED(name="developer"),
    ]
    assert AuditEntry.objects.filter(action="job.rehearse", actor=personas.developer).count() == 2


@pytest.mark.parametrize("rehearsal", [None, {}, {"every": "10s"}])
def test_a_rehearsal_without_a_role_is_refused(submit: Submit, personas: Personas, rehearsal: object) -> None:
    with pytest.raises(ValidationFailed):
        job_services.rehearse(actor=personas.developer, job_id=submit().pk, rehearsal=rehearsal)


def test_another_kind_of_backend_rehearses_nothing(
    backend: ObedientBackend, submit: Submit, personas: Personas
) -> None:
    backend.rehearses = False
    with pytest.raises(Conflict, match=pattern(messages.REHEARSAL_UNSUPPORTED)):
        job_services.rehearse(actor=personas.developer, job_id=submit().pk, rehearsal=KILL_TRAINERS)


def test_only_the_owner_of_a_job_rehearses_its_failure(
    backend: ObedientBackend, submit: Submit, personas: Personas
) -> None:
    with pytest.raises(Forbidden, match=pattern(messages.REHEARSAL_OWNER_ONLY)):
        job_services.rehearse(actor=personas.owner, job_id=submit().pk, rehearsal=KILL_TRAINERS)


def test_the_offer_equals_the_accepted_values(backend: ObedientBackend, submit: Submit, personas: Personas) -> None:
    for job in (submit(), submit(retries=1)):
        offer = job_selectors.rehearsal_offer(personas.developer, job)
        assert offer is not None and offer["roles"]
        for role in ("master", "pserver", "trainer"):
            rehearsal = {"kill": role, "every": "10s"}
            try:
                job_services.rehearse(actor=personas.developer, job_id=job.pk, rehearsal=rehearsal)
            except ValidationFailed:
                assert role not in offer["roles"]
            else:
                assert role in offer["roles"]


def test_the_offer_explains_why_nothing_can_be_rehearsed(
    backend: ObedientBackend, submit: Submit, personas: Personas
) -> None:
    backend.rehearses = False
    offer = job_selectors.rehearsal_offer(personas.developer, submit())
    assert offer is not None
    assert (offer["roles"], offer["why"]) == ([], messages.REHEARSAL_UNSUPPORTED())


def test_a_job_that_has_ended_rehearses_nothing(backend: ObedientBackend, submit: Submit, personas: Personas) -> None:
    job = submit()
    job_services.cancel_job(actor=personas.developer, job_id=job.pk)
    reconciler.reconcile(job.pk)
    with pytest.raises(Conflict, match=pattern(messages.REHEARSAL_WRONG_STATE, state="CANCELLED")):
        job_services.rehearse(actor=personas.developer, job_id=job.pk, rehearsal=KILL_TRAINERS)
