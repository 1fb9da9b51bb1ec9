"""HTTP API of jobs, for every persona of the namespace."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from django.db import connection
from django.http import HttpResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django import DjangoAssertNumQueries

from jobs.ingest.payloads import Report
from jobs.messages import jobs as messages
from jobs.models import Artifact, Attempt, Job
from jobs.reconcile import reconciler
from jobs.services import jobs as job_services
from jobs.services import replica_reports
from portal.common.clock import now
from quota.models import Limit
from tests.jobs.conftest import SPEC
from tests.jobs.fakes import ObedientBackend
from tests.messages import mentions
from tests.personas import EVERYBODY, Personas

pytestmark = pytest.mark.django_db
Submit = Callable[..., Job]
JOBS = "/api/v1/namespaces/team/jobs"
READING = ("", "/events", "/artifacts", "/files")
CHANGING = ("/cancel", "/retry", "/scale", "/rehearse")


def post(client: Client, path: str, body: object = None, **headers: str) -> HttpResponse:
    return client.post(path, json.dumps(body), content_type="application/json", headers=headers)


SUBMITTING = {"admin": 201, "owner": 201, "developer": 201, "viewer": 403, "stranger": 404, "nobody": 401}
SEEING = {"admin": 200, "owner": 200, "developer": 200, "viewer": 200, "stranger": 404, "nobody": 401}
CANCELLING = {"admin": 202, "owner": 202, "developer": 202, "viewer": 403, "stranger": 404, "nobody": 401}


@pytest.mark.parametrize("persona", EVERYBODY)
def test_permission_to_submit(persona: str, personas: Personas) -> None:
    assert post(personas.client(persona), JOBS, SPEC).status_code == SUBMITTING[persona]


@pytest.mark.parametrize("persona", EVERYBODY)
def test_permission_to_see_the_list(persona: str, personas: Personas, submit: Submit) -> None:
    submit()
    assert personas.client(persona).get(JOBS).status_code == SEEING[persona]


@pytest.mark.parametrize("path", READING)
@pytest.mark.parametrize("persona", EVERYBODY)
def test_permission_to_see_a_job(persona: str, path: str, personas: Personas, submit: Submit) -> None:
    assert personas.client(persona).get(f"/api/v1/jobs/{submit().pk}{path}").status_code == SEEING[persona]


@pytest.mark.parametrize("persona", EVERYBODY)
def test_permission_to_cancel(persona: str, personas: Personas, submit: Submit) -> None:
    assert post(personas.client(persona), f"/api/v1/jobs/{submit().pk}/cancel").status_code == CANCELLING[persona]


@pytest.mark.parametrize("persona", EVERYBODY)
def test_permission_to_scale(persona: str, personas: Personas, submit: Submit) -> None:
    job = submit(roles={"trainer": {"replicas": 1, "max": 2}})
    answer = post(personas.client(persona), f"/api/v1/jobs/{job.pk}/scale", {"trainer": 2})
    assert answer.status_code == CANCELLING[persona]
    assert answer.status_code != 202 or answer.json()["trainers"] == 2


def test_an_invalid_request_is_a_problem_with_its_field(personas: Personas, submit: Submit) -> None:
    answer = post(personas.client("developer"), f"/api/v1/jobs/{submit().pk}/scale", {"trainer": 9})
    assert (answer.status_code, answer["Content-Type"]) == (422, "application/problem+json")
    assert "allows 1 to 2 trainers" in answer.json()["errors"]["trainer"][0]


REHEARSING = {**CANCELLING, "admin": 403, "owner": 403}


@pytest.mark.parametrize("persona", EVERYBODY)
def test_only_the_owner_of_a_job_may_rehearse_its_failure(persona: str, personas: Personas, submit: Submit) -> None:
    client, path = personas.client(persona), f"/api/v1/jobs/{submit().pk}/rehearse"
    assert post(client, path, {"kill": "trainer", "every": "10s"}).status_code == REHEARSING[persona]
    assert client.delete(path).status_code == REHEARSING[persona]


@pytest.mark.parametrize("persona", EVERYBODY)
def test_permission_to_retry(persona: str, personas: Personas, submit: Submit, backend: ObedientBackend) -> None:
    job = submit()
    job_services.cancel_job(actor=personas.owner, job_id=job.pk)
    reconciler.reconcile(job.pk)
    assert post(personas.client(persona), f"/api/v1/jobs/{job.pk}/retry").status_code == CANCELLING[persona]


@pytest.mark.parametrize("persona", EVERYBODY)
def test_permission_to_clone(persona: str, personas: Personas, submit: Submit) -> None:
    assert post(personas.client(persona), f"/api/v1/jobs/{submit().pk}/clone").status_code == SEEING[persona]


def test_a_job_has_the_shape_that_clients_rely_on(personas: Personas) -> None:
    job = post(personas.client("developer"), JOBS, SPEC).json()
    relied_on = {"id", "name", "namespace", "owner", "state", "reason", "why", "attempt"}
    relied_on |= {"created", "started", "finished", "replicas", "spec"}
    assert relied_on <= set(job)
    assert (job["namespace"], job["owner"], job["state"]) == ("team", "developer", "QUEUED")


def test_a_submission_is_answered_as_it_is_read_later(personas: Personas) -> None:
    client = personas.client("developer")
    submitted = post(client, "/api/v1/namespaces/team/jobs", SPEC).json()
    assert submitted == client.get(f"/api/v1/jobs/{submitted['id']}").json()


@pytest.mark.parametrize(
    ("reports", "standby"),
    [
        ({"master-0": 12, "master-1": 9}, "master-0"),
        ({"master-1": 12, "master-0": 9}, "master-1"),
        ({"master-1": None, "master-0": 9}, "master-1"),
        ({"master-1": None, "master-0": None}, "master-0"),
    ],
)
def test_of_two_masters_the_one_of_the_lowest_incarnation_serves_whichever_report_comes_first(
    personas: Personas, submit: Submit, reports: dict[str, int | None], standby: str
) -> None:
    job = submit(roles={"master": {"replicas": 2}, "pserver": {"replicas": 1}, "trainer": {"replicas": 1}})
    reconciler.reconcile(job.pk)
    attempt = Attempt.objects.get(job=job)
    for name, incarnation in reports.items():
        replica_reports.record_report(
            attempt, Report(name, "registered", None, None, out_of_memory=False, why="", incarnation=incarnation)
        )
    replicas = personas.client("developer").get(f"/api/v1/jobs/{job.pk}").json()["replicas"]
    assert [one["name"] for one in replicas if mentions(one["why"], messages.ON_STANDBY)] == [standby]


def test_a_submission_takes_few_queries(
    personas: Personas, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    client = personas.client("developer")
    post(client, "/api/v1/namespaces/team/jobs", SPEC)
    # Session, account, namespace and role, limits and usage; then one transaction.
    with django_assert_max_num_queries(15):
        assert post(client, "/api/v1/namespaces/team/jobs", SPEC).status_code == 201


def test_yaml_is_taken_as_well(personas: Personas) -> None:
    answer = personas.client("developer").post(JOBS, yaml.safe_dump(SPEC), content_type="application/yaml")
    assert (answer.status_code, answer.json()["name"]) == (201, "digits")


def test_refused_input_is_reported_field_by_field(personas: Personas) -> None:
    body = {**SPEC, "name": "a b", "files": {"train.py": "def f(:\n"}, "roles": {"trainer": {"memory": "12 potatoes"}}}
    answer = post(personas.client("developer"), JOBS, body)
    problem = answer.json()
    assert (answer.status_code, answer["Content-Type"], problem["code"]) == (
        422,
        "application/problem+json",
        "validation_failed",
    )
    assert set(problem["errors"]) == {"name", "files.train.py", "roles.trainer.memory"}
    assert problem["positions"] == {"files.train.py": {"line": 1, "column": 7}}


@pytest.mark.parametrize(
    "body", ["", "{", "[]", "null", "[" * 100_000, '{"a": ' * 5000, "\ud800".encode("utf-8", "surrogatepass")]
)
def test_a_body_that_is_no_specification_is_a_clear_refusal(body: str | bytes, personas: Personas) -> None:
    answer = personas.client("developer").post(JOBS, body, content_type="application/json")
    assert answer.status_code in (400, 422)
    assert answer["Content-Type"] == "application/problem+json"


def test_over_quota_for_good_is_a_conflict_with_numbers(personas: Personas) -> None:
    Limit.objects.create(namespace=personas.namespace, resource="cpu", amount=1)
    answer = post(personas.client("developer"), JOBS, SPEC)
    assert (answer.status_code, answer.json()["code"]) == (409, "quota_exceeded")
    assert answer.json()["numbers"]["cpu"]["limit"] == 1


def test_a_dry_run_returns_the_verdict_and_submits_nothing(personas: Personas) -> None:
    answer = post(personas.client("developer"), f"{JOBS}?dry_run=true", SPEC)
    assert (answer.status_code, answer.json()["verdict"]) == (200, "admitted")
    assert len(answer.json()["plan"]["replicas"]) == 4
    assert not Job.objects.exists()


def test_the_same_key_gives_the_same_job(personas: Personas) -> None:
    client, key = personas.client("developer"), {"Idempotency-Key": "once"}
    first, second = (post(client, JOBS, SPEC, **key) for _ in range(2))
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json()["id"] == second.json()["id"]


def test_a_list_is_filtered_by_its_address(personas: Personas, submit: Submit) -> None:
    submit(name="digits")
    submit(name="line")
    client = personas.client("viewer")

    def names(query: str) -> list[str]:
        return [job["name"] for job in client.get(f"{JOBS}?{query}").json()["results"]]

    assert names("") == ["line", "digits"]
    assert names("q=dig") == ["digits"]
    assert names("owner=viewer") == []
    assert names("state=queued,running") == ["line", "digits"]
    assert names("state=ENDED") == []


def test_an_unknown_state_is_refused_with_those_that_are(personas: Personas) -> None:
    answer = personas.client("viewer").get(f"{JOBS}?state=sleeping")
    assert answer.status_code == 422
    assert "RUNNING" in answer.json()["errors"]["state"][0]


def test_pages_follow_each_other_without_gap_or_double(personas: Personas, submit: Submit) -> None:
    for number in range(5):
        submit(name=f"job-{number}")
    client, seen, cursor = personas.client("viewer"), [], ""
    while cursor is not None:
        page = client.get(f"{JOBS}?limit=2&cursor={cursor}" if cursor else f"{JOBS}?limit=2").json()
        seen += [job["name"] for job in page["results"]]
        cursor = page["next"]
    assert seen == [f"job-{number}" for number in reversed(range(5))]


def test_a_clone_can_be_submitted_as_it_is(personas: Personas, submit: Submit) -> None:
    client = personas.client("developer")
    spec: dict[str, Any] = post(client, f"/api/v1/jobs/{submit().pk}/clone").json()["spec"]
    assert post(client, JOBS, spec).status_code == 201


def test_an_artifact_comes_as_a_download(personas: Personas, submit: Submit, backend: ObedientBackend) -> None:
    job = submit()
    reconciler.reconcile(job.pk)
    attempt = Attempt.objects.select_related("job").get(job=job)
    digest = hashlib.sha256(b"<html>").hexdigest()
    replica_reports.store_artifact(
        attempt, replica="trainer-0", name="out/model.html", sha256=digest, size=6, stream=io.BytesIO(b"<html>")
    )
    client = personas.client("viewer")
    [listed] = client.get(f"/api/v1/jobs/{job.pk}/artifacts").json()["artifacts"]
    assert listed == {"name": "out/model.html", "size": 6, "sha256": digest}
    answer = client.get(f"/api/v1/jobs/{job.pk}/artifacts/out/model.html")
    assert answer["Content-Disposition"] == 'attachment; filename="model.html"'
    assert (answer["Content-Type"], answer["X-Content-Type-Options"]) == ("application/octet-stream", "nosniff")


def test_artifacts_come_by_pages_at_the_same_cost(personas: Personas, submit: Submit) -> None:
    job, client = submit(), personas.client("viewer")

    def leave(*numbers: int) -> None:
        Artifact.objects.bulk_create(
            Artifact(
                job=job, attempt=1, replica="trainer-0", name=f"{n:03}", size=1, sha256="x", key="k", created=now()
            )
            for n in numbers
        )

    def read(cursor: str = "") -> tuple[dict[str, Any], int]:
        with CaptureQueriesContext(connection) as queries:
            body = client.get(f"/api/v1/jobs/{job.pk}/artifacts", {"limit": 2, "cursor": cursor}).json()
        return body, len(queries)

    leave(1, 2, 3)
    first, few = read()
    second, _ = read(first["next"])
    names = [[artifact["name"] for artifact in page["artifacts"]] for page in (first, second)]
    assert (names, second["next"]) == ([["001", "002"], ["003"]], None)
    leave(*range(4, 40))
    assert read()[1] <= few


def test_an_artifact_that_is_not_there_is_not_found(personas: Personas, submit: Submit) -> None:
    assert personas.client("viewer").get(f"/api/v1/jobs/{submit().pk}/artifacts/model.npz").status_code == 404


def test_examples_need_an_account(personas: Personas) -> None:
    assert personas.client("nobody").get("/api/v1/examples").status_code == 401


def test_examples_can_be_submitted_as_they_are(personas: Personas) -> None:
    client = personas.client("developer")
    for example in client.get("/api/v1/examples").json()["results"]:
        assert post(client, f"{JOBS}?dry_run=true", example["spec"]).status_code == 200
