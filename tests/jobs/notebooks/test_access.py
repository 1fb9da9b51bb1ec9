"""Who reaches a notebook, in which replica, and with what rights its client acts."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from jobs.backends.base import AttemptRef, LaunchPlan, ReplicaPlan
from jobs.launch import notebooks as launch
from jobs.lifecycle.states import JobState, ReplicaState
from jobs.models import Attempt, Job, Notebook, Replica
from jobs.notebooks import access
from jobs.selectors.attempts import ref_of
from portal.common.clock import now
from portal.common.errors import Conflict, Forbidden, NotFound
from rbac import tokens
from rbac.models import ApiToken, Membership, Role
from runtime import contract
from tests.factories import make_member, make_namespace
from tests.jobs.notebooks.conftest import Make
from tests.personas import Personas

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _anybody_runs_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access.isolation, "refusal", lambda owner: "")


def plan_of(notebook: Notebook) -> LaunchPlan:
    """Launch plan of the notebook's present attempt, as the planner makes it."""
    assert notebook.job is not None
    replica = ReplicaPlan("trainer-0", contract.TRAINER, 0, ("python",), {"A": "1"}, 1.0, 2**31)
    ref: AttemptRef = ref_of(notebook.job, Attempt.objects.get(job=notebook.job))
    return LaunchPlan(ref, "team", Path(), (replica,), timedelta(seconds=1), 1, framework="notebook")


def launched(notebook: Notebook) -> dict[str, str]:
    """Launch the notebook; return the environment of its replica."""
    assert notebook.job is not None
    made = launch.completed(plan_of(notebook), notebook.job, Attempt.objects.get(job=notebook.job))
    return dict(made.replicas[0].environment)


def caller(secret: str) -> Client:
    return Client(headers={"authorization": f"Bearer {secret}"})


def test_the_target_is_the_only_replica_of_the_present_attempt(running: Notebook, personas: Personas) -> None:
    target = access.target_for(personas.owner, "team", running.pk)
    assert (target.replica, target.ref.job_id) == ("trainer-0", str(running.job_id))
    assert target.base_url == f"/n/team/notebooks/{running.pk}/"


def test_viewers_and_strangers_do_not_reach_it(running: Notebook, personas: Personas) -> None:
    with pytest.raises(Forbidden):
        access.target_for(personas.viewer, "team", running.pk)
    with pytest.raises(NotFound):
        access.target_for(personas.stranger, "team", running.pk)


def test_a_notebook_of_another_namespace_is_not_found(running: Notebook, personas: Personas) -> None:
    other = make_namespace("other", owner=personas.owner)
    with pytest.raises(NotFound):
        access.target_for(personas.owner, other.name, running.pk)


@pytest.mark.parametrize(
    "fields", [{"state": JobState.CANCELLED}, {"state": JobState.RUNNING, "cancel_requested": now()}]
)
def test_one_that_stops_is_a_conflict(running: Notebook, personas: Personas, fields: dict[str, Any]) -> None:
    Job.objects.update(**fields)
    with pytest.raises(Conflict):
        access.target_for(personas.developer, "team", running.pk)


def test_one_that_starts_is_a_conflict(running: Notebook, personas: Personas) -> None:
    Replica.objects.update(state=ReplicaState.WAITING)
    with pytest.raises(Conflict):
        access.target_for(personas.developer, "team", running.pk)


def test_a_use_is_noted(running: Notebook) -> None:
    before = now()
    Notebook.objects.update(last_used=before - timedelta(minutes=1))
    access.note_use(running.pk)
    assert Notebook.objects.get().last_used >= before


def test_uses_in_quick_succession_are_written_once(running: Notebook) -> None:
    before = now()
    Notebook.objects.update(last_used=before)
    access.note_use(running.pk)
    assert Notebook.objects.get().last_used == before


# --- The client's token ----------------------------------------------------------------------------------------------
@pytest.mark.invariant("The token in a notebook acts as a developer in one namespace and nowhere else.")
def test_the_token_is_bound_to_the_namespace(running: Notebook, personas: Personas) -> None:
    make_member(make_namespace("spare"), personas.developer, Role.OWNER)
    client = caller(launched(running)[contract.CLIENT_TOKEN])
    assert client.get("/api/v1/namespaces/team/jobs").status_code == 200
    assert client.get("/api/v1/namespaces/spare/jobs").status_code == 404
    assert [row["name"] for row in client.get("/api/v1/namespaces").json()["results"]] == ["team"]
    assert [row["name"] for row in client.get("/api/v1/me").json()["namespaces"]] == ["team"]


def test_the_token_of_an_admin_is_bound_too(running: Notebook, personas: Personas) -> None:
    make_namespace("spare")
    Job.objects.update(owner=personas.admin)
    client = caller(launched(Notebook.objects.select_related("job").get())[contract.CLIENT_TOKEN])
    assert client.get("/api/v1/namespaces/team/jobs").status_code == 200
    assert client.get("/api/v1/namespaces/spare/jobs").status_code == 404
    assert client.get("/api/v1/admin/system").status_code == 403


def test_the_token_of_an_owner_is_that_of_a_developer(running: Notebook, personas: Personas) -> None:
    Job.objects.update(owner=personas.owner)
    client = caller(launched(Notebook.objects.select_related("job").get())[contract.CLIENT_TOKEN])
    assert client.get("/api/v1/namespaces/team/tokens").status_code == 403
    assert client.post("/api/v1/tokens", {"name": "more"}, "application/json").status_code == 403


def test_the_token_ends_with_the_role_of_its_owner(running: Notebook, personas: Personas) -> None:
    client = caller(launched(running)[contract.CLIENT_TOKEN])
    Membership.objects.filter(user=personas.developer).delete()
    assert client.get("/api/v1/namespaces/team/jobs").status_code == 404


def test_a_second_launch_gives_the_same_token(running: Notebook) -> None:
    assert launched(running) == launched(running)
    assert ApiToken.objects.count() == 1


def test_the_database_does_not_hold_the_token(running: Notebook) -> None:
    secret = launched(running)[contract.CLIENT_TOKEN]
    assert secret.startswith(tokens.TOKEN_PREFIX)
    assert secret not in str(list(ApiToken.objects.values())) + str(list(Job.objects.values()))


def test_the_plan_names_the_home_of_the_namespace(running: Notebook) -> None:
    assert running.job is not None
    made = launch.completed(plan_of(running), running.job, Attempt.objects.get())
    assert made.replicas[0].home == str(running.namespace_id)


def test_plans_of_other_jobs_stay_as_they_are(make: Make, running: Notebook) -> None:
    assert running.job is not None
    plan = replace(plan_of(running), framework="native")
    assert launch.completed(plan, running.job, Attempt.objects.get()) is plan
