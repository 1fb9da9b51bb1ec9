"""Jobs that train on datasets of namespaces: the pinned version, and the removal of the data."""

from __future__ import annotations

import errno
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.conf import settings

from datasets import garbage_collection, materialization, selectors, services
from datasets import messages as datasets_messages
from datasets.models import Version
from datasets.storage.base import StorageAway, StorageError
from datasets.storage.local import LocalStorage
from jobs.lifecycle.states import JobState
from jobs.messages import jobs as messages
from jobs.models import Attempt, Job
from jobs.reconcile import reconciler
from jobs.reconcile.building import PREPARING
from jobs.selectors import specifications
from jobs.selectors.jobs import versions_in_use
from jobs.services import jobs
from portal.common.clock import now
from portal.common.errors import Conflict, ValidationFailed
from runtime import contract
from tests.datasets.filled import seal
from tests.jobs.conftest import SPEC
from tests.jobs.fakes import ObedientBackend
from tests.messages import mentions, pattern
from tests.personas import Personas

pytestmark = pytest.mark.django_db
Submit = Callable[..., Job]


@pytest.fixture
def version(personas: Personas) -> Version:
    return seal(personas.developer)


@pytest.fixture
def submit(personas: Personas) -> Submit:
    def submitted(dataset: str = "team/mine", key: str | None = None) -> Job:
        wanted = specifications.parse({**SPEC, "dataset": dataset}, find_dataset=lambda name: name)
        return jobs.submit_job(actor=personas.developer, namespace="team", spec=wanted, idempotency_key=key).job

    return submitted


def test_the_version_is_fixed_when_the_job_is_submitted(personas: Personas, version: Version, submit: Submit) -> None:
    job = submit()
    seal(personas.developer)
    job.refresh_from_db()
    assert (job.spec["dataset"], job.dataset_version) == ("team/mine@1", version)


def test_a_shipped_dataset_has_no_version(submit: Submit) -> None:
    job = submit("public/digits")
    assert (job.spec["dataset"], job.dataset_version) == ("public/digits", None)


def test_a_dataset_the_namespace_may_not_use_is_refused_by_its_field(personas: Personas, submit: Submit) -> None:
    seal(personas.stranger, "elsewhere", "theirs")
    with pytest.raises(ValidationFailed) as refused:
        submit("elsewhere/theirs")
    assert mentions(
        refused.value.errors["dataset"][0], datasets_messages.DATASET_NOT_FOUND_FOR_JOB, name="'elsewhere/theirs'"
    )


def test_the_api_refuses_it_beside_other_errors(personas: Personas, version: Version) -> None:
    client = personas.client("developer")
    body = {**SPEC, "dataset": "team/mime", "passes": 0}
    answer = client.post("/api/v1/namespaces/team/jobs", body, "application/json")
    assert answer.status_code == 422
    assert set(answer.json()["errors"]) == {"dataset", "passes"}
    assert "team/mine" in answer.json()["errors"]["dataset"][0]


def test_a_repeated_submission_is_the_same_also_after_another_version(
    personas: Personas, version: Version, submit: Submit
) -> None:
    first = submit(key="k")
    seal(personas.developer)
    assert submit(key="k") == first == submit("team/mine@1", key="k")
    with pytest.raises(Conflict):
        submit("team/mine@2", key="k")


@pytest.mark.invariant("A job reads the dataset version of its submission and no other version.")
def test_the_processes_are_shown_its_version_and_no_other(
    version: Version, submit: Submit, backend: ObedientBackend
) -> None:
    job = submit()
    assert reconciler.reconcile(job.pk) is JobState.REGISTERING
    (plan,) = backend.plans.values()
    for replica in plan.replicas:
        own, *shipped = replica.environment[contract.DATA_PATH].split(":")
        assert own == str(materialization.root_of(version.pk))
        assert shipped == [str(path) for path in selectors.data_path()]
        assert replica.environment[contract.DATASET] == "team/mine@1"
    assert (materialization.root_of(version.pk) / "team" / "mine" / "files" / "train.csv").exists()


def test_a_failing_storage_fails_the_job_with_a_message(
    version: Version, submit: Submit, backend: ObedientBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(self: LocalStorage, key: str, path: object) -> None:
        raise StorageError("The storage is away.")

    monkeypatch.setattr(LocalStorage, "place", away)
    job = submit()
    reconciler.reconcile(job.pk)
    job.refresh_from_db()
    assert (job.state, job.why) == ("FAILED", messages.DATASET_NOT_PREPARED(error="The storage is away."))


@pytest.mark.parametrize(
    "fault",
    [StorageAway("The storage has too much to do."), OSError(errno.EMFILE, "Too many open files")],
    ids=["storage", "descriptors"],
)
def test_a_fault_of_the_moment_fails_no_job(
    version: Version, submit: Submit, backend: ObedientBackend, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    def fail(self: LocalStorage, key: str, path: object) -> None:
        raise fault

    job = submit()
    with monkeypatch.context() as patched:
        patched.setattr(LocalStorage, "place", fail)
        assert reconciler.reconcile(job.pk) is JobState.BUILDING
    assert reconciler.reconcile(job.pk) is JobState.REGISTERING


def test_a_lasting_fault_fails_the_job_with_a_message(
    version: Version, submit: Submit, backend: ObedientBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(self: LocalStorage, key: str, path: object) -> None:
        raise StorageAway("The storage has too much to do.")

    monkeypatch.setattr(LocalStorage, "place", away)
    job = submit()
    reconciler.reconcile(job.pk)
    Attempt.objects.update(created=now() - PREPARING)
    assert reconciler.reconcile(job.pk) is JobState.FAILED
    job.refresh_from_db()
    assert job.why == messages.DATASET_NOT_PREPARED(
        error=messages.TIME_RANGE(least="The storage has too much", most="do.")
    )


@pytest.mark.invariant("A deleted dataset version stays until the jobs that use it have ended.")
def test_data_that_is_deleted_under_a_job_stays_until_the_job_has_ended(
    personas: Personas, version: Version, submit: Submit, backend: ObedientBackend
) -> None:
    job = submit()
    services.delete_version(actor=personas.developer, ns="team", name="mine", number=1)
    over = now() + timedelta(days=settings.KEEP_DELETED_DATASETS_DAYS + 1)
    garbage_collection.tidy(over, versions_in_use())
    assert reconciler.reconcile(job.pk) is not JobState.FAILED
    Job.objects.update(state=JobState.SUCCEEDED)
    garbage_collection.tidy(over, versions_in_use())
    assert not Version.objects.exists()


@pytest.mark.parametrize(
    ("deed", "why"),
    [
        ("version", pattern(messages.DATASET_VERSION_DELETED, name="team/mine@1")),
        ("dataset", pattern(messages.DATASET_DELETED, name="team/mine@1")),
        ("purge", pattern(messages.DATASET_PURGED, name="team/mine@1")),
    ],
)
def test_a_job_whose_data_is_deleted_is_not_tried_again(
    personas: Personas, version: Version, submit: Submit, deed: str, why: str
) -> None:
    job = submit()
    Job.objects.update(state=JobState.FAILED)
    if deed == "version":
        services.delete_version(actor=personas.developer, ns="team", name="mine", number=1)
    else:
        services.delete_dataset(actor=personas.developer, ns="team", name="mine")
    if deed == "purge":
        garbage_collection.tidy(now() + timedelta(days=1000), versions_in_use())
    with pytest.raises(Conflict, match=why):
        jobs.retry_job(actor=personas.developer, job_id=job.pk)


def test_the_page_offers_the_version_of_the_job_to_begin_from(
    personas: Personas, version: Version, submit: Submit
) -> None:
    job = submit()
    seal(personas.developer)
    page = personas.client("developer").get(f"/n/team/jobs/new?clone={job.pk}").content.decode()
    assert page.index('value="team/mine@1"') < page.index('value="team/mine"') < page.index('value="public/digits"')
