"""Requests that schemathesis makes from the API document, valid and invalid ones, to a portal with data. For every
caller the document describes the answer."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
import schemathesis
from django.core.cache import cache
from django.core.handlers.wsgi import WSGIHandler
from django.core.signals import request_finished, request_started
from django.db import close_old_connections, transaction
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core import NOT_SET
from schemathesis.core.failures import Failure, FailureGroup
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance

from datasets.indexing import indexing
from datasets.services import create_dataset
from jobs.lifecycle.states import JobState, ReplicaState
from jobs.models import Job, Replica
from jobs.notebooks import services as notebooks
from jobs.selectors import specifications
from jobs.services import holding, replica_reports
from jobs.services import jobs as job_services
from jobs.streams import store
from jobs.terminals import recordings
from portal.common.clock import now
from quota.services import ask_for_more
from rbac import tokens
from rbac.models import Connection, Role, Session
from rbac.namespaces import invitations
from rbac.selectors import digest_of
from rbac.sign_in import cli_authorization
from tests.answers import whole
from tests.datasets.conftest import Uploader, sha
from tests.factories import make_attempt, make_member, make_namespace, make_token, make_user
from tests.jobs.conftest import SPEC
from tests.personas import Personas
from tests.rbac.sign_in.test_cli_authorization import CHALLENGE, VERIFIER

pytestmark = pytest.mark.django_db
CONTENT, SHA = b"m", sha(b"m")
PASSWORD = "a few words to remember"
CHECKS = (not_a_server_error, content_type_conformance, response_schema_conformance)
# Requests for each operation, the same ones on every run: valid ones and invalid ones.
EXAMPLES: Mapping[GenerationMode, int] = {GenerationMode.POSITIVE: 2, GenerationMode.NEGATIVE: 1}
# Callers of the one valid request; the first two also send the generated requests.
CALLERS = ("admin", "developer", "owner", "stranger", "nobody")
DATASET = "/api/v1/datasets/{ns}/{name}"
VERSION = f"{DATASET}/versions/{{number}}"
FILE = f"{VERSION}/files/{{file_id}}"
PUT_PART = f"PUT {FILE}/parts/{{part}}"
# A valid body for the operations that take one; one of them needs a header too.
BODIES: Mapping[str, Any] = {
    "POST /api/v1/auth/token": {"username": "grace", "password": PASSWORD},
    "POST /api/v1/auth/exchange": {"code": "a-code", "verifier": VERIFIER},
    "PUT /api/v1/capacity": {"capacity": {"cpu": 64}},
    f"PATCH {DATASET}": {"visibility": "public"},
    f"PUT {DATASET}/shares": {"namespaces": ["elsewhere"]},
    f"POST {DATASET}/versions": {"expected_bytes": 1},
    f"POST {VERSION}/files": {"path": "b.bin", "size": 1},
    PUT_PART: CONTENT,
    f"POST {FILE}/complete": {"sha256": SHA},
    "POST /api/v1/jobs/{job_id}/rehearse": {"kill": "trainer", "every": "10s"},
    "POST /api/v1/jobs/{job_id}/flamegraph": {"seconds": 1, "replicas": None},
    "POST /api/v1/jobs/{job_id}/hold": {"seconds": 60, "replicas": None},
    "POST /api/v1/jobs/{job_id}/release": {"replicas": None},
    "POST /api/v1/jobs/{job_id}/variables": {"replica": "trainer-0"},
    "POST /api/v1/jobs/{job_id}/scale": {"trainer": 2},
    "POST /api/v1/namespaces": {"name": "vision"},
    "DELETE /api/v1/namespaces/{ns}": {"name": "spare"},
    "POST /api/v1/namespaces/{ns}/datasets": {"name": "theirs"},
    "POST /api/v1/namespaces/{ns}/hand-over": {"username": "developer"},
    "POST /api/v1/namespaces/{ns}/invitations": {"who": "ada@example.org"},
    "POST /api/v1/namespaces/{ns}/jobs": SPEC,
    "POST /api/v1/namespaces/{ns}/notebooks": {"name": "second"},
    "PATCH /api/v1/notebooks/{notebook_id}": {"idle": "1h"},
    "POST /api/v1/namespaces/{ns}/members": {"username": "grace", "role": "viewer"},
    "PUT /api/v1/namespaces/{ns}/quota": {"limits": {"cpu": 3}},
    "POST /api/v1/namespaces/{ns}/quota/requests": {"limits": {"cpu": 3}, "reason": "A course."},
    "POST /api/v1/namespaces/{ns}/tokens": {"name": "nightly", "role": "viewer"},
    "POST /api/v1/quota-requests/{wish_id}": {"approve": True, "reason": "A course."},
    "POST /api/v1/tokens": {"name": "program"},
    "POST /api/v1/users": {"username": "ada", "password": PASSWORD},
}
HEADERS = {PUT_PART: {"X-Content-SHA256": SHA}}
# Separate namespaces for operations that a namespace with jobs and a quota request refuses.
NAMESPACES = {
    "DELETE /api/v1/namespaces/{ns}": "spare",
    "POST /api/v1/namespaces/{ns}/quota/requests": "spare",
}
Places = Mapping[str, Any]


@pytest.fixture(autouse=True)
def _own_directories(settings: Any, tmp_path: Any) -> None:
    settings.STORAGE_DIR, settings.ATTEMPTS_DIR = tmp_path / "storage", tmp_path / "attempts"


class AgentOfHeldProgram:
    """Answers the calls about holds."""

    def call(self, name: str, seconds: float, /, **parameters: Any) -> dict[str, Any]:
        variable = {"name": "x", "type": "int", "size": 28, "shape": "", "text": "1"}
        frame = {"file": "train.py", "line": 3, "function": "<module>", "variables": [variable]}
        return {"held": True, "exception": "ValueError", "message": "bad", "complete": True, "frames": [frame]}


@pytest.fixture(autouse=True)
def _an_agent_of_a_held_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holding, "connect", lambda *_: nullcontext(AgentOfHeldProgram()))


@pytest.fixture
def portal() -> Iterator[WSGIHandler]:
    """The portal in this process. The end of a request does not end the test's transaction, as with Django's client."""
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield Gathering()
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


class Gathering(WSGIHandler):
    """Reads responses that stream from a thread to their end, for a server that does not wait for threads."""

    def get_response(self, request: Any) -> Any:
        answer = super().get_response(request)
        if answer.streaming and answer.is_async:
            answer.streaming_content = [whole(answer)]
        return answer


def furnish(personas: Personas) -> Callable[[str], Places]:
    """Create real data for every placeholder in the address of an operation."""
    make_user("grace", password=PASSWORD)
    make_member(make_namespace("spare", owner=personas.owner), personas.developer)
    submitted = [
        job_services.submit_job(actor=personas.developer, namespace="team", spec=specifications.parse(SPEC)).job
        for _ in "ab"
    ]
    running, ended = submitted
    Job.objects.filter(pk=running.pk).update(state=JobState.RUNNING)
    Job.objects.filter(pk=ended.pk).update(state=JobState.FAILED)
    write(running)
    token, _ = tokens.create_token(actor=personas.owner, name="program")
    service, _ = tokens.create_service_token(actor=personas.owner, namespace_name="team", name="bot", role=Role.VIEWER)
    invite = partial(invitations.invite, actor=personas.owner, namespace_name="team", role=Role.VIEWER)
    invited, outside = invite(invitee="stranger").invitation, invite(invitee="grace").invitation
    quota_request = ask_for_more(actor=personas.developer, namespace_name="team", limits={"cpu": 99}, reason="More.")
    personas.client("owner")
    Connection.objects.create(
        digest=digest_of("a-code"),
        challenge=CHALLENGE,
        user=personas.viewer,
        name="laptop",
        expires=now() + cli_authorization.LIFETIME,
    )
    stored = upload(personas)
    recording = recordings.begin(running, "trainer-0", "developer")
    assert recordings.add_part(recording, b"[1, 2]")
    notebook, _ = notebooks.create(actor=personas.developer, namespace="team", body={"name": "first"})
    places = {
        "notebook_id": str(notebook.pk),
        "recording_id": str(recording.pk),
        "ns": "team",
        "job_id": str(running.pk),
        "username": "viewer",
        "token_id": str(token.pk),
        "invitation_id": str(invited.pk),
        "wish_id": quota_request.pk,
        "handle": Session.objects.get(user=personas.owner).handle,
        "name": "model.npz",
        "path": "a.bin",
        "part": 0,
    }
    special: Mapping[str, Places] = {
        "GET /api/v1/datasets/public/{name}": {"name": "digits"},
        "POST /api/v1/jobs/{job_id}/retry": {"job_id": str(ended.pk)},
        "DELETE /api/v1/jobs/{job_id}": {"job_id": str(ended.pk)},
        "DELETE /api/v1/namespaces/{ns}/tokens/{token_id}": {"token_id": str(service.pk)},
        "DELETE /api/v1/namespaces/{ns}/invitations/{invitation_id}": {"invitation_id": str(outside.pk)},
        **{label: {"ns": spare} for label, spare in NAMESPACES.items()},
    }
    return lambda label: {**places, **stored(label), **special.get(label, {})}


def upload(personas: Personas) -> Callable[[str], Places]:
    """Create a sealed version, one with an incomplete file, and one with a complete file; return the one of the
    operation."""
    create_dataset(actor=personas.developer, namespace_name="team", name="mine")
    mine = Uploader(personas.developer)
    mine.begin()
    mine.upload("a.bin", CONTENT)
    indexing.index(mine.seal().pk)
    mine.begin()
    coming = {"number": mine.number, "file_id": mine.announce("a.bin", CONTENT).pk}
    mine.begin()
    ready = {"number": mine.number, "file_id": mine.upload("a.bin", CONTENT).pk}
    about: Mapping[str, Places] = {
        f"POST {VERSION}/files": coming,
        f"DELETE {FILE}": coming,
        PUT_PART: coming,
        f"POST {FILE}/complete": ready,
        f"POST {VERSION}/seal": ready,
    }
    return lambda label: {"name": "mine", "number": 1, **about.get(label, {})} if DATASET in label else {}


def write(job: Job) -> None:
    """Write the output of an attempt of the job."""
    attempt = make_attempt(job)
    Job.objects.filter(pk=job.pk).update(attempt=attempt.number)
    # It is held after an exception, and no agent answers for it except about that.
    replica = Replica(attempt=attempt, name="trainer-0", role="trainer", index=0, state=ReplicaState.REGISTERED)
    replica.started, replica.held = now(), {"exception": "ValueError", "seconds": 60, "until": now().timestamp() + 60}
    replica.save()
    lines = [(1e9 + number, "stdout", f"line {number}") for number in range(1, 4)]
    points = [(1e9 + number, float(number), "cost", 1 / number) for number in range(1, 4)]
    store.append_logs(job_id=job.pk, attempt=attempt, replica="trainer-0", first=1, lines=lines)
    store.append_metrics(job_id=job.pk, attempt=attempt, replica="trainer-0", first=1, points=points)
    replica_reports.store_artifact(
        attempt, replica="trainer-0", name="model.npz", sha256=SHA, size=1, stream=io.BytesIO(CONTENT)
    )


def questions(operation: Any) -> Iterator[Case]:
    """Return the generated requests: valid ones, and invalid ones when more than the address can be invalid."""
    for mode, count in EXAMPLES.items():
        if mode is GenerationMode.POSITIVE or operation.body or operation.query:
            yield from drawn(operation.as_strategy(generation_mode=mode), count)


def drawn(strategy: SearchStrategy[Case], count: int) -> list[Case]:
    """Return the first examples that hypothesis generates."""
    found: list[Case] = []

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def keep(case: Case) -> None:
        found.append(case)

    keep()
    return found


class Examiner:
    """Send the requests, and record errors in the answers. No request changes anything."""

    def __init__(self, personas: Personas) -> None:
        self.wrong: dict[str, str] = {}
        self.done: set[str] = set()
        self._bearers = {name: f"Bearer {make_token(personas.user(name))}" for name in CALLERS if name != "nobody"}

    def ask(self, case: Case, caller: str) -> None:
        label = case.operation.label
        case.headers.pop("Authorization", None)
        if caller in self._bearers:
            case.headers["Authorization"] = self._bearers[caller]
        with transaction.atomic():
            answer = case.call()
            transaction.set_rollback(True)
        cache.clear()
        self.done |= {label} if answer.status_code < 300 else set()
        if message := _wrong_with(case, answer):
            self.wrong.setdefault(label, f"{caller}: {case.as_curl_command()}: {answer.status_code} {message}")


def _wrong_with(case: Case, answer: schemathesis.Response) -> str:
    if answer.status_code < 400 and str(answer.status_code) not in case.operation.definition.raw["responses"]:
        return "is not in the document"
    try:
        case.validate_response(answer, checks=list(CHECKS))
    except (FailureGroup, Failure) as failure:
        return repr(failure)
    return ""


@pytest.mark.invariant("Each answer of the API is one that its OpenAPI document describes.")
@pytest.mark.timeout(600)
def test_every_answer_is_described_by_the_document(personas: Personas, portal: WSGIHandler) -> None:
    places_of, examiner = furnish(personas), Examiner(personas)
    document = schemathesis.openapi.from_wsgi("/api/schema", portal)
    operations = {found.ok().label: found.ok() for found in document.get_all_operations()}
    for label, operation in operations.items():
        for case in questions(operation):
            examiner.ask(case, CALLERS[0])
            real = {name: value for name, value in places_of(label).items() if name in case.path_parameters}
            case.path_parameters.update(real)
            for caller in CALLERS[:2]:
                examiner.ask(case, caller)
        body = BODIES.get(label, NOT_SET)
        right = operation.Case(
            path_parameters=real,
            body=body,
            media_type="application/octet-stream" if isinstance(body, bytes) else "application/json",
            headers=HEADERS.get(label, {}),
        )
        for caller in CALLERS:
            examiner.ask(right, caller)
    assert examiner.wrong == {}
    assert set(operations) - examiner.done == set(), "nobody got these done, so their answers were not looked at"
    assert set(BODIES) <= set(operations)
