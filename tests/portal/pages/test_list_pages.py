"""The cost of a list does not depend on its length: no page and no call sends a query per row."""

from __future__ import annotations

import uuid

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from datasets.models import Dataset, Version
from datasets.states import VersionState
from jobs.lifecycle.states import JobState
from jobs.selectors.specifications import parse
from portal.common.clock import now
from quota import ledger, storage
from quota.ledger import ReservationRequest
from quota.models import Kind, QuotaRequest
from quota.storage import StoredObject
from rbac.audit import log as audit_log
from rbac.models import Namespace, Role
from tests.factories import LONG_AGO, make_attempt, make_job, make_member, make_namespace, make_token, make_user
from tests.personas import Personas

pytestmark = pytest.mark.django_db

LISTS = (
    "/n/team/jobs",
    "/n/team/jobs?owner=all",
    "/n/team/quota",
    "/n/team/datasets",
    "/datasets/team/listed",
    "/n/team/members",
    "/n/team/tokens",
    "/tokens",
    "/sessions",
    "/admin/users",
    "/admin/namespaces",
    "/admin/cluster",
    "/admin/system",
    "/admin/quotas",
    "/admin/quotas/of/team",
    "/admin/quotas/requests",
    "/admin/audit",
    "/waiting",
    "/api/v1/admin/system",
    "/api/v1/datasets",
    "/api/v1/namespaces",
    "/api/v1/namespaces/team/datasets",
    "/api/v1/namespaces/team/jobs",
    "/api/v1/namespaces/team/members",
    "/api/v1/namespaces/team/tokens",
    "/api/v1/namespaces/team/quota",
    "/api/v1/namespaces/team/quota/requests",
    "/api/v1/namespaces/team/usage",
    "/api/v1/quota-requests",
    "/api/v1/tokens",
    "/api/v1/sessions",
)


def grow(personas: Personas) -> None:
    """Add one more of every listed object."""
    states = (JobState.QUEUED, JobState.RUNNING, JobState.SUCCEEDED)
    wanted = parse({"name": "digits", "files": {"train.py": "1\n"}}).to_json()
    for owner in (personas.admin, make_user()):
        for state in states:
            job = make_job(personas.namespace, owner, state=state, spec=wanted)
            make_attempt(job).replicas.create(name="trainer-0", role="trainer", index=0)
            asked = ReservationRequest(job.pk, 1, {"cpu": 1, "jobs": 1}, label=job.name, owner=owner)
            ledger.reserve(personas.namespace, asked)
            storage.add(StoredObject(personas.namespace.pk, Kind.ARTIFACTS, str(job.pk), job.name), 10)
    make_member(personas.namespace, make_user(), Role.VIEWER)
    other = make_namespace(owner=personas.admin)
    ledger.reserve(other, ReservationRequest(uuid.uuid4(), 1, {"cpu": 1}, label="other", owner=personas.admin))
    fields = {"limits": {"cpu": 2}, "reason": "More.", "asked": LONG_AGO, "asker": make_user()}
    QuotaRequest.objects.create(namespace=other, **fields)
    answered = {"state": "approved", "answered": LONG_AGO, "answered_by": make_user()}
    QuotaRequest.objects.create(namespace=personas.namespace, **fields, **answered)
    for namespace in (personas.namespace, other):
        grow_data(namespace, personas)
    make_token(personas.admin)
    Client().force_login(personas.admin)
    audit_log.record("job.submit", str(job.pk), actor=make_user(), namespace=other)


def grow_data(namespace: Namespace, personas: Personas) -> None:
    """Add one more dataset, with versions and a reader; and one more version and use of ``listed``."""
    about = {"owner": personas.admin, "created": LONG_AGO}
    dataset = Dataset.objects.create(namespace=namespace, name=f"set-{uuid.uuid4().hex[:8]}", **about)
    Dataset.objects.create(namespace=namespace, name=f"set-{uuid.uuid4().hex[:8]}", deleted_at=now(), **about)
    dataset.shares.create(name=make_namespace().name)
    listed, _ = Dataset.objects.get_or_create(namespace=namespace, name="listed", defaults=about)
    begun = {"created": LONG_AGO, "touched": LONG_AGO, "created_by": personas.admin}
    for each in (dataset, listed):
        Version.objects.create(dataset=each, number=each.versions.count() + 1, state=VersionState.SEALED, **begun)
    make_job(namespace, make_user(), state=JobState.SUCCEEDED, spec={"dataset": f"{namespace.name}/listed@1"})


@pytest.mark.parametrize("path", LISTS)
def test_a_list_costs_the_same_however_long_it_is(personas: Personas, settings, path: str) -> None:
    settings.DEFAULT_QUOTA = {"cpu": 3}
    client = personas.client("admin")

    def cost(rows: int) -> int:
        for _ in range(rows):
            grow(personas)
        client.get(path)  # the first request of a session needs more queries
        with CaptureQueriesContext(connection) as queries:
            assert client.get(path).status_code == 200
        return len(queries)

    assert cost(2) == cost(5)
