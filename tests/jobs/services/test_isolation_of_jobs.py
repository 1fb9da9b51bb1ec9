"""Submission over HTTP to a machine that cannot isolate jobs: only admins may, unless isolation is off."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.http import HttpResponse

from jobs.backends.local import isolation
from jobs.messages import cluster as messages
from jobs.models import Job
from runtime.isolation.probe import Isolation, Mode
from tests.jobs.conftest import SPEC
from tests.messages import mentions
from tests.personas import Personas

pytestmark = pytest.mark.django_db
JOBS = "/api/v1/namespaces/team/jobs"
WHAT_TO_DO = "set kernel.unprivileged_userns_clone=1 with sysctl"


@pytest.fixture
def without_isolation(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    found = Isolation(Mode.NONE, (f"user namespaces do not work: {WHAT_TO_DO}",))
    monkeypatch.setattr(isolation, "_probed", lambda uid, data: found)
    settings.CLUSTER_BACKEND, settings.LOCAL_ISOLATION = "local", "auto"


def post(personas: Personas, persona: str, query: str = "") -> HttpResponse:
    return personas.client(persona).post(f"{JOBS}{query}", json.dumps(SPEC), content_type="application/json")


@pytest.mark.usefixtures("without_isolation")
@pytest.mark.parametrize("persona", ["developer", "owner"])
def test_the_job_of_a_member_is_refused_with_what_an_admin_can_do(persona: str, personas: Personas) -> None:
    answer = post(personas, persona)
    problem = json.loads(answer.content)
    assert (answer.status_code, answer["Content-Type"]) == (403, "application/problem+json")
    assert problem["code"] == "forbidden"
    assert mentions(problem["detail"], messages.ADMINS_ONLY_WITHOUT_ISOLATION)
    assert WHAT_TO_DO in problem["detail"]
    assert not Job.objects.exists()


@pytest.mark.usefixtures("without_isolation")
def test_a_dry_run_reports_the_same(personas: Personas) -> None:
    preview = json.loads(post(personas, "developer", "?dry_run=true").content)
    assert preview["verdict"] == "refused"
    assert WHAT_TO_DO in preview["reason"]


@pytest.mark.usefixtures("without_isolation")
def test_an_admin_s_job_is_taken(personas: Personas) -> None:
    assert json.loads(post(personas, "admin", "?dry_run=true").content)["verdict"] == "admitted"
    assert post(personas, "admin").status_code == 201


@pytest.mark.usefixtures("without_isolation")
def test_a_job_of_a_member_is_taken_where_the_operator_asks_for_no_isolation(personas: Personas, settings: Any) -> None:
    settings.LOCAL_ISOLATION = "none"
    assert post(personas, "developer").status_code == 201
