"""Authorisation of every route of the portal, for every persona. A route missing in the table fails the last test."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from datasets import services as datasets
from jobs.models import Attempt, Job, Notebook
from jobs.notebooks import services as notebooks
from jobs.services import replica_reports
from tests.factories import make_attempt
from tests.personas import EVERYBODY, SHUT_OUT, Personas

pytestmark = pytest.mark.django_db
NOTEBOOK_ID = "11111111-1111-4111-8111-111111111111"
NONE = "00000000-0000-4000-8000-000000000000"
CONTENT, SHA = b"m", "62c66a7a5dd70c3146618063c344e531e6d4b59e379808443ce962b3abd63c5a"

# The status for each of EVERYBODY: admin, owner, developer, viewer, stranger, nobody. The body is always empty: 422
# means that the caller is authorised and fields are missing. Disabled and revoked accounts get the status of nobody,
# except that an invalid token gets 401 where a session of nobody is redirected to the sign-in page (302).
ALL = "200 200 200 200 200 200"
SIGNED_IN = "200 200 200 200 200 401"
MEMBERS = "200 200 200 200 404 401"
OWN = "404 404 404 404 404 401"
GONE = "404 404 404 404 404 404"
# A used or expired link: the page of a conflict.
OVER = "409 409 409 409 409 409"
OWN_PAGE = "404 404 404 404 404 302"
SIGNED_IN_PAGE = "200 200 200 200 200 302"
MEMBERS_PAGE = "200 200 200 200 404 302"
ADMIN = "422 403 403 403 403 401"
ADMIN_PAGE = "200 403 403 403 403 302"
ADMIN_DEED = "302 403 403 403 403 302"
USER_DEEDS = ("enable", "disable", "make-admin", "no-admin", "reset-password", "look")
AGENTS = "401 401 401 401 401 401"

NS, JOB, INGEST = "api/v1/namespaces/<str:ns>", "api/v1/jobs/<uuid:job_id>", "ingest/v1/attempts/<uuid:attempt_id>"
NOTEBOOK, NOTEBOOKS_PAGE = "api/v1/notebooks/<uuid:notebook_id>", "n/<str:ns>/notebooks"
DATASET = "api/v1/datasets/<str:ns>/<str:name>"
DATASET_PAGE = "datasets/<str:ns>/<str:name>"
VERSION = f"{DATASET}/versions/<int:number>"
TABLE = {
    "GET healthz": ALL,
    "GET readyz": ALL,
    "GET texts.js": ALL,
    "GET api/schema": ALL,
    # Pages
    "GET sign-in": "302 302 302 302 302 200",
    "POST sign-in": "302 302 302 302 302 401",
    "GET sign-in/code": "302 302 302 302 302 302",
    "POST sign-in/code": "302 302 302 302 302 302",
    # No provider is configured here.
    "POST sign-in/with/<str:backend>": GONE,
    "GET sign-in/back/<str:backend>": GONE,
    "POST account/connections/<int:connection_id>/remove": OWN_PAGE,
    "GET sign-up": ALL,
    "POST sign-up": "422 422 422 422 422 422",
    "GET sign-up/confirm/<str:token>": GONE,
    "POST sign-up/confirm/<str:token>": GONE,
    "GET password": ALL,
    "POST password": "422 422 422 422 422 422",
    "GET password/<str:who>/<str:token>": OVER,
    "POST password/<str:who>/<str:token>": OVER,
    "GET welcome": SIGNED_IN_PAGE,
    "GET waiting": "200 403 403 403 403 302",
    "POST waiting/<str:username>/approve": "404 403 403 403 403 302",
    "POST waiting/<str:username>/refuse": "404 403 403 403 403 302",
    "GET account": SIGNED_IN_PAGE,
    "POST account/password": "302 302 302 302 302 302",
    "GET account/second-factor": SIGNED_IN_PAGE,
    "POST account/second-factor": SIGNED_IN_PAGE,
    "POST account/second-factor/on": "302 302 302 302 302 302",
    "POST account/second-factor/codes": "409 409 409 409 409 302",
    "POST account/second-factor/off": "302 302 302 302 302 302",
    "POST sign-out": "302 302 302 302 302 302",
    "POST language": "302 302 302 302 302 302",
    "GET ": "302 302 302 302 302 302",
    "GET tokens": SIGNED_IN_PAGE,
    "POST tokens": "422 422 422 422 422 302",
    "POST tokens/<uuid:token_id>/revoke": "404 404 404 404 404 302",
    "GET sessions": SIGNED_IN_PAGE,
    "POST sessions/end-all": "302 302 302 302 302 302",
    "POST sessions/<str:handle>/end": OWN_PAGE,
    "GET invitations": SIGNED_IN_PAGE,
    "GET invitations/link/<str:secret>": OWN_PAGE,
    "POST invitations/link/<str:secret>": OWN_PAGE,
    "POST invitations/<uuid:invitation_id>/accept": OWN_PAGE,
    "POST invitations/<uuid:invitation_id>/decline": OWN_PAGE,
    # A form with an error message redirects to its page, as a successful one does.
    "GET n/<str:ns>/members": MEMBERS_PAGE,
    "POST n/<str:ns>/members/<str:username>/role": "302 302 302 302 302 302",
    "POST n/<str:ns>/members/<str:username>/remove": "404 404 403 403 404 302",
    "POST n/<str:ns>/members/<str:username>/hand-over": "404 404 403 403 404 302",
    "POST n/<str:ns>/invitations": "302 302 302 302 302 302",
    "POST n/<str:ns>/record-terminals": "302 302 403 403 404 302",
    "POST n/<str:ns>/invitations/<uuid:invitation_id>/withdraw": "404 404 403 403 404 302",
    "GET n/<str:ns>/abilities": MEMBERS_PAGE,
    "GET n/<str:ns>/tokens": "200 200 403 403 404 302",
    "POST n/<str:ns>/tokens": "422 422 403 403 404 302",
    "POST n/<str:ns>/tokens/<uuid:token_id>/revoke": "404 404 403 403 404 302",
    "POST n/<str:ns>/close": "302 302 403 403 404 302",
    "GET n/<str:ns>/quota": MEMBERS_PAGE,
    "POST n/<str:ns>/quota/requests": "302 302 302 302 302 302",
    "POST n/<str:ns>/quota/requests/<int:wish_id>/withdraw": OWN_PAGE,
    # Only for admins; a form without a reason is refused with a message
    **{
        f"GET admin/{page}": ADMIN_PAGE
        for page in ("users", "namespaces", "sign-in", "audit", "audit.csv", "quotas", "quotas/requests")
    },
    "GET admin/cluster": ADMIN_PAGE,
    "GET admin/cluster/now": ADMIN_PAGE,
    "POST admin/cluster/mode": ADMIN_DEED,
    "POST admin/cluster/what-if": ADMIN_PAGE,
    "GET admin/system": ADMIN_PAGE,
    # The contents alone, which the page requests: without a session the answer reloads the page.
    "GET admin/system/now": "200 403 403 403 403 204",
    "POST admin/system/diagnostics": ADMIN_PAGE,
    "POST admin/system/e-mails/<int:failure_id>/send": ADMIN_DEED,
    "POST admin/new-user": ADMIN_DEED,
    "POST admin/sign-in/letter": ADMIN_DEED,
    "GET admin/users/<str:username>": "404 403 403 403 403 302",
    **{f"POST admin/users/<str:username>/{deed}": ADMIN_DEED for deed in USER_DEEDS},
    "POST admin/looking/end": "409 409 409 409 409 302",
    "GET admin/quotas/of/<str:ns>": ADMIN_PAGE,
    "POST admin/quotas/of/<str:ns>/limits": ADMIN_DEED,
    "POST admin/quotas/capacity": ADMIN_DEED,
    "POST admin/quotas/requests/<int:wish_id>": ADMIN_DEED,
    "GET n/<str:ns>/jobs": MEMBERS_PAGE,
    "GET n/<str:ns>/jobs/new": "200 200 200 403 404 302",
    "GET n/<str:ns>/jobs/<uuid:job_id>": MEMBERS_PAGE,
    "POST n/<str:ns>/jobs/<uuid:job_id>/delete": "302 302 302 403 404 302",
    # Accounts and namespaces
    "POST api/v1/auth/token": "422 422 422 422 422 422",
    "POST api/v1/auth/exchange": "422 422 422 422 422 422",
    "DELETE api/v1/tokens/current": "409 409 409 409 409 401",
    # Without the parameters that the command adds to the address
    "GET connect": "422 422 422 422 422 302",
    "POST connect": "422 422 422 422 422 302",
    "GET api/v1/me": SIGNED_IN,
    "POST api/v1/users": ADMIN,
    "GET api/v1/namespaces": SIGNED_IN,
    "POST api/v1/namespaces": ADMIN,
    f"GET {NS}/members": MEMBERS,
    f"POST {NS}/members": "422 422 403 403 404 401",
    f"DELETE {NS}/members/<str:username>": "404 404 403 403 404 401",
    f"DELETE {NS}": "422 422 403 403 404 401",  # the body does not repeat its name
    f"GET {NS}/abilities": MEMBERS,
    f"POST {NS}/hand-over": "422 422 403 403 404 401",
    f"GET {NS}/invitations": "200 200 403 403 404 401",
    f"POST {NS}/invitations": "422 422 403 403 404 401",
    f"DELETE {NS}/invitations/<uuid:invitation_id>": "404 404 403 403 404 401",
    f"GET {NS}/tokens": "200 200 403 403 404 401",
    f"POST {NS}/tokens": "422 422 403 403 404 401",
    f"DELETE {NS}/tokens/<uuid:token_id>": "404 404 403 403 404 401",
    "GET api/v1/invitations": SIGNED_IN,
    "POST api/v1/invitations/<uuid:invitation_id>/accept": OWN,
    "POST api/v1/invitations/<uuid:invitation_id>/decline": OWN,
    "GET api/v1/sessions": SIGNED_IN,
    "DELETE api/v1/sessions": "204 204 204 204 204 401",
    "DELETE api/v1/sessions/<str:handle>": OWN,
    "POST api/v1/tokens": "422 422 422 422 422 401",
    "GET api/v1/tokens": SIGNED_IN,
    "DELETE api/v1/tokens/<uuid:token_id>": OWN,
    f"GET {NS}/quota": MEMBERS,
    f"PUT {NS}/quota": "422 403 403 403 404 401",
    f"GET {NS}/quota/requests": MEMBERS,
    f"POST {NS}/quota/requests": "422 422 422 403 404 401",
    f"GET {NS}/usage": MEMBERS,
    "GET api/v1/quota-requests": "200 403 403 403 403 401",
    "POST api/v1/quota-requests/<int:wish_id>": ADMIN,
    "DELETE api/v1/quota-requests/<int:wish_id>": OWN,
    "GET api/v1/admin/system": "200 403 403 403 403 401",
    "GET api/v1/capacity": "200 403 403 403 403 401",
    "PUT api/v1/capacity": ADMIN,
    # Pages of datasets; a form with an error message redirects to its page, as a successful one does.
    "GET n/<str:ns>/datasets": MEMBERS_PAGE,
    "GET n/<str:ns>/datasets/new": "200 200 200 403 404 302",
    "POST n/<str:ns>/datasets/new": "422 422 422 403 404 302",
    f"GET {DATASET_PAGE}": MEMBERS_PAGE,
    f"GET {DATASET_PAGE}/upload": "200 200 200 403 404 302",
    f"POST {DATASET_PAGE}/change": "302 302 302 403 404 302",
    f"POST {DATASET_PAGE}/readers": "302 302 302 403 404 302",
    f"POST {DATASET_PAGE}/delete": "302 302 302 403 404 302",
    f"POST {DATASET_PAGE}/restore": "302 302 302 403 404 302",
    f"POST {DATASET_PAGE}/versions/<int:number>/delete": "302 404 404 403 404 302",  # the first deletes it
    f"POST {DATASET_PAGE}/versions/<int:number>/files/<int:file_id>/take-out": "404 404 404 403 404 302",
    # Datasets and examples
    "GET api/v1/datasets": SIGNED_IN,
    "GET api/v1/datasets/public/<str:name>": SIGNED_IN,
    f"GET {NS}/datasets": MEMBERS,
    f"POST {NS}/datasets": "422 422 422 403 404 401",
    f"GET {DATASET}": MEMBERS,
    f"PATCH {DATASET}": "422 422 422 403 404 401",
    f"DELETE {DATASET}": "202 202 202 403 404 401",
    f"POST {DATASET}/restore": "200 200 200 403 404 401",
    f"PUT {DATASET}/shares": "422 422 422 403 404 401",
    f"GET {DATASET}/uses": MEMBERS,
    f"POST {DATASET}/versions": "201 201 201 403 404 401",
    # Its only version is open: a viewer does not see it.
    f"GET {VERSION}": "200 200 200 404 404 401",
    f"GET {VERSION}/preview": "404 404 404 404 404 401",
    f"DELETE {VERSION}": "202 404 404 403 404 401",  # the first deletes it
    f"POST {VERSION}/seal": "409 409 409 403 404 401",
    f"GET {VERSION}/files": "200 200 200 404 404 401",
    f"POST {VERSION}/files": "422 422 422 403 404 401",
    f"DELETE {VERSION}/files/<int:file_id>": "404 404 404 403 404 401",
    f"PUT {VERSION}/files/<int:file_id>/parts/<int:part>": "404 404 404 403 404 401",
    f"POST {VERSION}/files/<int:file_id>/complete": "422 422 422 403 404 401",
    f"GET {VERSION}/content/<path:path>": "404 404 404 404 404 401",
    "GET api/v1/examples": SIGNED_IN,
    # Jobs
    f"GET {NS}/jobs": MEMBERS,
    f"POST {NS}/jobs": "422 422 422 403 404 401",
    f"GET {JOB}": MEMBERS,
    f"DELETE {JOB}": "409 409 409 403 404 401",  # it has not ended
    f"POST {JOB}/cancel": "202 202 202 403 404 401",
    # Without a body: an authorised caller gets the missing fields.
    f"POST {JOB}/scale": "422 422 422 403 404 401",
    # Only for the owner of the job.
    f"POST {JOB}/rehearse": "403 403 422 403 404 401",
    f"DELETE {JOB}/rehearse": "403 403 202 403 404 401",
    # No replica runs.
    f"POST {JOB}/stacks": "409 409 409 403 404 401",
    f"POST {JOB}/flamegraph": "409 409 409 403 404 401",
    # It does not run.
    f"POST {JOB}/pause": "409 409 409 403 404 401",
    f"POST {JOB}/resume": "409 409 409 403 404 401",
    f"POST {JOB}/hold": "409 409 409 403 404 401",
    f"POST {JOB}/release": "409 409 409 403 404 401",
    f"POST {JOB}/variables": "422 422 422 403 404 401",
    # Only for owners of the namespace; there is no such recording.
    f"GET {JOB}/recordings": "200 200 403 403 404 401",
    f"GET {JOB}/recordings/<uuid:recording_id>": "404 404 403 403 404 401",
    f"POST {JOB}/retry": "409 409 409 403 404 401",
    f"POST {JOB}/clone": MEMBERS,
    f"GET {JOB}/events": MEMBERS,
    f"GET {JOB}/files": MEMBERS,
    f"GET {JOB}/artifacts": MEMBERS,
    f"GET {JOB}/artifacts/<path:name>": MEMBERS,
    f"GET {JOB}/metrics": MEMBERS,
    f"GET {JOB}/metrics/points": MEMBERS,
    f"GET {JOB}/metrics.csv": MEMBERS,
    f"GET {JOB}/logs": MEMBERS,
    f"GET {JOB}/logs/download": MEMBERS,
    # Notebooks
    f"GET {NS}/notebooks": MEMBERS,
    f"POST {NS}/notebooks": "422 422 422 403 404 401",
    f"GET {NOTEBOOK}": MEMBERS,
    f"PATCH {NOTEBOOK}": "200 200 200 403 404 401",
    f"DELETE {NOTEBOOK}": "204 404 404 404 404 401",  # the first deletes it
    f"POST {NOTEBOOK}/start": "200 200 200 403 404 401",
    f"POST {NOTEBOOK}/stop": "200 200 200 403 404 401",
    f"GET {NOTEBOOKS_PAGE}": MEMBERS_PAGE,
    f"POST {NOTEBOOKS_PAGE}/new": "422 422 422 403 404 302",
    # A form with an error message redirects to the page.
    f"POST {NOTEBOOKS_PAGE}/of-dataset": "302 302 302 403 404 302",
    f"POST {NOTEBOOKS_PAGE}/<uuid:notebook_id>/start": "302 302 302 403 404 302",
    f"POST {NOTEBOOKS_PAGE}/<uuid:notebook_id>/stop": "302 302 302 403 404 302",
    f"POST {NOTEBOOKS_PAGE}/<uuid:notebook_id>/delete": "302 404 404 403 404 302",  # the first deletes it
    # It does not run.
    f"GET {NOTEBOOKS_PAGE}/<uuid:notebook_id>/<path:path>": "409 409 409 403 404 302",
    "POST n/<str:ns>/jobs/<uuid:job_id>/notebook": "302 302 302 403 404 302",
    # Requests of agents: no session is accepted
    **{
        f"POST {INGEST}/{call}": AGENTS
        for call in ("begin", "logs", "metrics", "events", "report", "heartbeat", "artifacts")
    },
    # Responses to agents
    **{f"GET {INGEST}/{call}": AGENTS for call in ("stop", "code", "data", "data/<path:path>")},
}
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


def routes(resolver: URLResolver, prefix: str = "") -> Iterator[str]:
    for pattern in resolver.url_patterns:
        route = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from routes(pattern, route)
        elif isinstance(pattern, URLPattern):
            yield route


@pytest.fixture
def job(submit: Any) -> Job:
    """A job of ``team`` with a file that its attempt left."""
    job: Job = submit()
    attempt = make_attempt(job)
    replica_reports.store_artifact(
        attempt, replica="trainer-0", name="model.npz", sha256=SHA, size=len(CONTENT), stream=io.BytesIO(CONTENT)
    )
    return job


@pytest.fixture(autouse=True)
def dataset(personas: Personas) -> None:
    """``team/mine`` with a version that is being filled."""
    datasets.create_dataset(actor=personas.developer, namespace_name="team", name="mine")
    datasets.begin_version(actor=personas.developer, ns="team", name="mine")


@pytest.fixture(autouse=True)
def notebook(personas: Personas) -> None:
    """A notebook of ``team`` that was never started."""
    made, _ = notebooks.create(actor=personas.developer, namespace="team", body={"name": "first"})
    Notebook.objects.filter(pk=made.pk).update(id=NOTEBOOK_ID)


def address(route: str, job: Job) -> str:
    values = {
        "<str:ns>": "team",
        "<uuid:job_id>": str(job.pk),
        "<uuid:notebook_id>": NOTEBOOK_ID,
        "<uuid:attempt_id>": str(Attempt.objects.get(job=job).pk),
        "<path:name>": "model.npz",
        "public/<str:name>": "public/digits",
        "<str:name>": "mine",
        "<int:number>": "1",
        "<int:file_id>": "999",
        "<int:part>": "0",
        "<path:path>": "no/such.file",
        "<str:username>": "ghost",
        "<uuid:token_id>": NONE,
        "<uuid:invitation_id>": NONE,
        "<uuid:recording_id>": NONE,
        "<str:handle>": "0" * 32,
        "<str:backend>": "oidc",
        "<int:connection_id>": "1",
        "<str:token>": "no-such-token",
        "<str:who>": "MQ",
        "<str:secret>": "no-such-secret",
        "<int:wish_id>": "999",
        "<int:failure_id>": "999",
    }
    for name, value in values.items():
        route = route.replace(name, value)
    return f"/{route}"


def status(client: Client, method: str, path: str) -> int:
    body = {} if method == "GET" else {"data": {}, "content_type": "application/json"}
    return int(getattr(client, method.lower())(path, **body).status_code)


@pytest.mark.invariant("Each route of a job gives each role the answer of the authorisation table.")
@pytest.mark.parametrize(("call", "expected"), TABLE.items(), ids=TABLE)
def test_everybody_gets_what_the_table_says(personas: Personas, job: Job, call: str, expected: str) -> None:
    method, _, route = call.partition(" ")
    statuses = [status(personas.client(name), method, address(route, job)) for name in EVERYBODY]
    assert " ".join(map(str, statuses)) == expected
    shut_out = [status(personas.client(name), method, address(route, job)) for name in SHUT_OUT]
    nobody = statuses[-1]
    assert shut_out[0] == nobody
    assert shut_out[1] == (401 if route.startswith("api/") and nobody == 200 else nobody)


def test_every_call_is_in_the_table(personas: Personas, job: Job) -> None:
    calls = [(method, route) for route in routes(get_resolver()) for method in METHODS]
    clients = [personas.client(name) for name in ("admin", "nobody")]
    unknown = [(method, route) for method, route in calls if f"{method} {route}" not in TABLE]
    opened = {
        f"{method} {route}": statuses
        for method, route in unknown
        if (statuses := [status(client, method, address(route, job)) for client in clients])[0] != 405
        or statuses[1] not in (405, 401, 302)
    }
    assert opened == {}
    assert set(TABLE) <= {f"{method} {route}" for method, route in calls}, "the table names routes that are not there"
