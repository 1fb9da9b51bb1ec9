"""Storage usage of jobs: counted against the namespace, refused before it is stored, and released on deletion."""

from __future__ import annotations

import hashlib
import io
from datetime import timedelta
from typing import Any

import pytest

from datasets.storage import default_storage
from jobs import storage_usage
from jobs.backends.base import BackendUnavailable
from jobs.lifecycle.states import JobState
from jobs.maintenance import garbage_collection, stream_compaction
from jobs.messages import jobs as messages
from jobs.models import Artifact, Attempt, CodeSnapshot, Job
from jobs.services import jobs as job_services
from jobs.services import replica_reports
from jobs.streams import store
from portal.common.clock import now
from portal.common.errors import Conflict, QuotaExceeded
from quota import messages as quota_messages
from quota.models import Kept, Limit
from quota.selectors import kept_by_kind
from rbac.models import AuditEntry
from tests.factories import make_attempt
from tests.jobs.fakes import ObedientBackend
from tests.messages import pattern
from tests.personas import Personas

pytestmark = pytest.mark.django_db
TRAIN = "print('hello')\n"


def counted(personas: Personas) -> dict[str, int]:
    return {kind: size for kind, size in kept_by_kind(personas.namespace).items() if size}


def limit(personas: Personas, size: int) -> None:
    Limit.objects.update_or_create(namespace=personas.namespace, resource="storage", defaults={"amount": size})


def keep(attempt: Attempt, body: bytes, name: str = "model.npz", **more: Any) -> Artifact:
    fields = {"sha256": hashlib.sha256(body).hexdigest(), "size": len(body), "stream": io.BytesIO(body), **more}
    return replica_reports.store_artifact(attempt, replica="trainer-0", name=name, **fields)


# --- Code ------------------------------------------------------------------------------------------------------------
def test_code_is_counted_once_however_often_it_is_submitted(personas: Personas, submit: Any) -> None:
    first, second = submit(), submit()
    assert first.snapshot_id == second.snapshot_id
    assert counted(personas) == {"code": first.snapshot.size}


def test_code_that_does_not_fit_is_refused_before_it_is_kept(personas: Personas, submit: Any) -> None:
    limit(personas, 1000)
    with pytest.raises(QuotaExceeded, match=pattern(quota_messages.NAMESPACE_STORAGE_FULL, namespace="team")):
        submit(files={"train.py": "x = 1\n" * 1000})
    assert not list(default_storage().list("snapshots"))
    assert counted(personas) == {}


class DiskFailed(Exception):
    pass


@pytest.mark.parametrize("step", ["code_snapshots.keep", "_create"])
def test_a_submission_that_fails_counts_no_code(
    personas: Personas, submit: Any, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def fail(*_arguments: Any) -> None:
        raise DiskFailed

    monkeypatch.setattr(f"jobs.services.jobs.{step}", fail)
    with pytest.raises(DiskFailed):
        submit()
    assert counted(personas) == {}


def test_a_submission_that_fails_leaves_the_code_of_another_job_counted(
    personas: Personas, submit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: Any) -> None:
        raise DiskFailed

    first = submit()
    monkeypatch.setattr("jobs.services.jobs._create", fail)
    with pytest.raises(DiskFailed):
        submit()
    assert counted(personas) == {"code": first.snapshot.size}


def test_where_the_storage_is_full_no_job_is_taken_in(personas: Personas, submit: Any) -> None:
    """Its code may be stored already, but there would be no space for its model."""
    limit(personas, submit().snapshot.size)
    with pytest.raises(QuotaExceeded):
        submit()
    assert Job.objects.count() == 1


# --- Artifacts -------------------------------------------------------------------------------------------------------
@pytest.fixture
def attempt(submit: Any) -> Attempt:
    return make_attempt(submit())


def test_a_file_is_counted(personas: Personas, attempt: Attempt) -> None:
    keep(attempt, b"m" * 500)
    keep(attempt, b"m" * 500)
    keep(attempt, b"n" * 30, name="other.npz")
    assert counted(personas)["artifacts"] == 530


def test_a_file_that_does_not_fit_is_refused_before_it_is_read(personas: Personas, attempt: Attempt) -> None:
    limit(personas, 10_000_000)
    body = io.BytesIO(b"m" * 500)
    with pytest.raises(QuotaExceeded):
        keep(attempt, b"", size=20_000_000, stream=body)
    assert body.tell() == 0
    assert "artifacts" not in counted(personas)


def test_a_file_that_was_cut_is_not_counted(personas: Personas, attempt: Attempt) -> None:
    with pytest.raises(Exception, match="another hash"):
        keep(attempt, b"m" * 500, sha256="0" * 64)
    assert "artifacts" not in counted(personas)


def test_a_file_in_the_place_of_another_counts_alone(personas: Personas, attempt: Attempt) -> None:
    keep(attempt, b"m" * 500)
    keep(attempt, b"n" * 200)
    assert counted(personas)["artifacts"] == 200
    assert [stat.size for stat in default_storage().list("artifacts")] == [200]


# --- Streams and checkpoints -----------------------------------------------------------------------------------------
def test_the_sealed_part_of_a_log_is_counted(personas: Personas, attempt: Attempt) -> None:
    for number in range(3):
        lines = [(1.0, "stdout", f"line {number}")]
        store.append_logs(job_id=attempt.job_id, attempt=attempt, replica="trainer-0", first=number + 1, lines=lines)
    assert "streams" not in counted(personas)
    store.close(attempt.job_id)
    stream_compaction.seal_due(now())
    sizes = counted(personas)["streams"]
    assert sizes > 0
    assert storage_usage.repair(now() + timedelta(days=1)) == 0
    assert counted(personas)["streams"] == sizes


def test_checkpoints_are_counted_as_they_are_found(
    personas: Personas, attempt: Attempt, backend: ObedientBackend
) -> None:
    backend.kept.add(str(attempt.job_id))
    storage_usage.measure(now())
    assert counted(personas)["checkpoints"] == 1000
    backend.kept.clear()
    storage_usage.measure(now())
    assert "checkpoints" not in counted(personas)


def test_files_left_uncounted_by_a_crash_are_counted_by_the_sweep(personas: Personas, attempt: Attempt) -> None:
    keep(attempt, b"m" * 500)
    before = counted(personas)
    Kept.objects.all().delete()
    storage_usage.repair(now())
    assert counted(personas) == before


# --- Deletion --------------------------------------------------------------------------------------------------------
def ended(job: Job) -> Job:
    Job.objects.filter(pk=job.pk).update(state=JobState.FAILED)
    return job


def test_a_deleted_job_leaves_nothing_but_its_row_in_the_trail(
    personas: Personas, attempt: Attempt, backend: ObedientBackend, django_capture_on_commit_callbacks: Any
) -> None:
    keep(attempt, b"m" * 500)
    backend.kept.add(str(attempt.job_id))
    storage_usage.measure(now())
    with django_capture_on_commit_callbacks(execute=True):
        job_services.delete_job(actor=personas.developer, job_id=ended(attempt.job).pk)
    assert (counted(personas), list(default_storage().list("artifacts")), backend.kept) == ({}, [], set())
    assert not Job.objects.exists()
    assert AuditEntry.objects.get(action="job.delete").detail["name"] == attempt.job.name


def test_a_job_that_has_not_ended_is_not_deleted(personas: Personas, submit: Any) -> None:
    with pytest.raises(Conflict, match=pattern(messages.JOB_NOT_ENDED)):
        job_services.delete_job(actor=personas.developer, job_id=submit().pk)


def test_code_that_another_job_has_stays(personas: Personas, submit: Any) -> None:
    first, second = submit(), submit()
    job_services.delete_job(actor=personas.developer, job_id=ended(first).pk)
    assert counted(personas) == {"code": second.snapshot.size}
    assert garbage_collection.forget_code(now() + timedelta(days=1)) == 0


def test_code_that_no_job_has_is_removed_after_a_while(personas: Personas, submit: Any) -> None:
    job = submit()
    job_services.delete_job(actor=personas.developer, job_id=ended(job).pk)
    assert garbage_collection.forget_code(now()) == 0
    assert garbage_collection.forget_code(now() + timedelta(days=1)) == 1
    assert (list(default_storage().list("snapshots")), CodeSnapshot.objects.count()) == ([], 0)


def test_a_job_is_deleted_on_its_page(personas: Personas, submit: Any) -> None:
    job = ended(submit())
    answer = personas.client("developer").post(f"/n/team/jobs/{job.pk}/delete")
    assert (answer.status_code, answer["Location"], Job.objects.count()) == (302, "/n/team/jobs", 0)


def test_a_job_is_deleted_although_its_backend_is_away(
    submit: Any,
    personas: Personas,
    backend: ObedientBackend,
    monkeypatch: pytest.MonkeyPatch,
    django_capture_on_commit_callbacks: Any,
) -> None:
    def fail(_: str) -> None:
        raise BackendUnavailable("the cluster does not answer")

    job = ended(submit())
    monkeypatch.setattr(backend, "forget", fail)
    with django_capture_on_commit_callbacks(execute=True):
        job_services.delete_job(actor=personas.developer, job_id=job.pk)
    assert not Job.objects.filter(pk=job.pk).exists()
