"""Limits of a token: bound to scopes, for a lifetime, for a program of a namespace."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client

from portal.common.clock import now
from portal.common.errors import Conflict, Forbidden, ValidationFailed
from rbac import messages, tokens
from rbac.models import ApiToken, Role, User
from rbac.scopes import Scope
from tests.factories import make_job
from tests.messages import mentions, pattern
from tests.personas import Personas

pytestmark = pytest.mark.django_db
JSON = "application/json"


def bearer(secret: str) -> Client:
    return Client(headers={"authorization": f"Bearer {secret}"})


def bound(personas: Personas, *scopes: Scope, name: str = "owner") -> Client:
    """Return a client with a token of that person, bound to the scopes."""
    user = personas.user(name)
    assert isinstance(user, User)
    return bearer(tokens.create_token(actor=user, name="bound", scopes=scopes)[1])


def service(personas: Personas, role: Role = Role.DEVELOPER, **more) -> Client:
    made = tokens.create_service_token(actor=personas.owner, namespace_name="team", name="nightly", role=role, **more)
    return bearer(made[1])


# --- Scopes ----------------------------------------------------------------------------------------------------------
def test_a_token_without_scopes_does_what_its_account_may(personas: Personas) -> None:
    assert bound(personas).post("/api/v1/namespaces/team/members", {}, JSON).status_code == 422


def test_a_token_that_reads_jobs_writes_none(personas: Personas) -> None:
    job = make_job(personas.namespace, personas.owner)
    reader = bound(personas, Scope.JOB_READ)
    assert reader.get(f"/api/v1/jobs/{job.pk}").status_code == 200
    refused = reader.post(f"/api/v1/jobs/{job.pk}/cancel")
    assert refused.status_code == 403
    assert mentions(
        reader.post("/api/v1/namespaces/team/jobs", {}, JSON).json()["detail"],
        messages.TOKEN_SCOPE_INSUFFICIENT,
        scope="job:write",
    )


def test_a_token_that_writes_jobs_reads_them_and_changes_no_members(personas: Personas) -> None:
    job = make_job(personas.namespace, personas.owner)
    writer = bound(personas, Scope.JOB_WRITE)
    assert writer.post(f"/api/v1/jobs/{job.pk}/cancel").status_code == 202
    assert writer.post("/api/v1/namespaces/team/members", {}, JSON).status_code == 403


@pytest.mark.parametrize("path", ["tokens", "sessions", "invitations"])
def test_a_bound_token_does_not_reach_the_account(personas: Personas, path: str) -> None:
    assert bound(personas, Scope.JOB_WRITE).get(f"/api/v1/{path}").status_code == 403
    assert bound(personas, Scope.ACCOUNT_ADMIN).get(f"/api/v1/{path}").status_code == 200


def test_a_bound_token_makes_no_unbound_one(personas: Personas) -> None:
    assert bound(personas, Scope.JOB_WRITE).post("/api/v1/tokens", {"name": "more"}, JSON).status_code == 403


def test_a_token_made_with_a_bound_one_gets_its_scopes(personas: Personas) -> None:
    maker = bound(personas, Scope.ACCOUNT_ADMIN)
    made = maker.post("/api/v1/tokens", {"name": "more"}, JSON).json()
    assert made["scopes"] == ["account:admin"]
    assert bearer(made["token"]).get("/api/v1/namespaces/team/jobs").status_code in (403, 404)


def test_a_bound_token_grants_no_scope_that_it_lacks(personas: Personas) -> None:
    body = {"name": "more", "scopes": ["job:write"]}
    answer = bound(personas, Scope.ACCOUNT_ADMIN).post("/api/v1/tokens", body, JSON)
    assert answer.status_code == 422
    assert mentions(answer.json()["detail"], messages.SCOPE_NOT_GRANTED)


def test_a_token_made_with_one_that_expires_expires_with_it(personas: Personas) -> None:
    soon = now() + timedelta(days=2)
    maker = bearer(tokens.create_token(actor=personas.owner, name="expires", expires=soon)[1])
    made = [maker.post("/api/v1/tokens", {"name": "x", "days": days}, JSON).json() for days in (None, 30, 1)]
    expiries = [ApiToken.objects.get(pk=each["id"]).expires for each in made]
    assert expiries[:2] == [soon, soon]
    assert expiries[2] < soon


def test_a_service_token_made_with_a_bound_token_gets_its_scopes_and_expiry(personas: Personas) -> None:
    soon = now() + timedelta(days=2)
    scopes = [Scope.NAMESPACE_ADMIN]
    maker = bearer(tokens.create_token(actor=personas.owner, name="x", scopes=scopes, expires=soon)[1])
    url = "/api/v1/namespaces/team/tokens"
    made = maker.post(url, {"name": "one", "role": "developer"}, JSON).json()
    assert made["scopes"] == ["namespace:read", "namespace:admin"]
    assert ApiToken.objects.get(pk=made["id"]).expires == soon
    more = {"name": "two", "role": "developer", "scopes": ["job:write"]}
    assert maker.post(url, more, JSON).status_code == 422


def test_an_admin_s_bound_token_is_no_admin(personas: Personas) -> None:
    body = {"username": "eve", "password": "a long enough passphrase"}
    assert bound(personas, Scope.JOB_WRITE, name="admin").post("/api/v1/users", body, JSON).status_code == 403
    assert bound(personas, Scope.PLATFORM_ADMIN, name="admin").post("/api/v1/users", body, JSON).status_code == 201


@pytest.mark.invariant("A token grants no more than its scopes, even to an administrator.")
def test_an_admin_s_bound_token_sees_no_more_than_its_scopes(personas: Personas) -> None:
    make_job(personas.namespace, personas.owner)
    quota = bound(personas, Scope.QUOTA_READ, name="admin")
    assert quota.get("/api/v1/namespaces/team/quota").status_code == 200
    assert quota.get("/api/v1/namespaces/team/jobs").status_code == 403


def test_what_is_no_scope_is_refused_by_name(personas: Personas) -> None:
    with pytest.raises(ValidationFailed, match=pattern(messages.SCOPE_UNKNOWN, name="'job:all'")):
        tokens.create_token(actor=personas.owner, name="x", scopes=["job:all"])


def test_the_page_of_abilities_applies_the_scopes_of_the_token(personas: Personas) -> None:
    response = bound(personas, Scope.JOB_READ).get("/api/v1/namespaces/team/abilities").json()
    held = {row["scope"] for row in response["abilities"] if row["held"]}
    assert (response["role"], held) == ("owner", {"namespace:read", "job:read"})


# --- Lifetime --------------------------------------------------------------------------------------------------------
def test_a_token_ends_after_the_days_that_were_asked_for(personas: Personas) -> None:
    answer = personas.client("owner").post("/api/v1/tokens", {"name": "short", "days": 1}, JSON).json()
    assert bearer(answer["token"]).get("/api/v1/me").status_code == 200
    ApiToken.objects.filter(pk=answer["id"]).update(expires=now() - timedelta(seconds=1))
    assert bearer(answer["token"]).get("/api/v1/me").status_code == 401


@pytest.mark.parametrize("days", [0, -1, 3651, "soon", 1.5])
def test_an_invalid_lifetime_is_refused(personas: Personas, days: object) -> None:
    assert personas.client("owner").post("/api/v1/tokens", {"name": "x", "days": days}, JSON).status_code == 422


@pytest.mark.parametrize("fields", [{"days": "7000"}, {"days": "x"}, {"scopes": ["root"]}])
def test_the_page_refuses_what_it_did_not_offer(personas: Personas, fields: dict) -> None:
    assert personas.client("owner").post("/tokens", {"name": "x", **fields}).status_code == 422
    assert not ApiToken.objects.exists()


def test_the_page_makes_a_bound_token_that_ends(personas: Personas) -> None:
    personas.client("owner").post("/tokens", {"name": "x", "days": "30", "scopes": ["job:read"]})
    token = ApiToken.objects.get()
    assert token.scopes == ["namespace:read", "job:read"]
    assert timedelta(days=29) < token.expires - now() <= timedelta(days=30)


def test_nobody_keeps_tokens_without_end(personas: Personas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "TOKENS_PER_ACCOUNT", 1)
    tokens.create_token(actor=personas.owner, name="one")
    with pytest.raises(Conflict, match=pattern(messages.TOKEN_LIMIT_REACHED, count=1)):
        tokens.create_token(actor=personas.owner, name="two")


# --- Service tokens --------------------------------------------------------------------------------------------------
def test_a_service_token_acts_as_itself_and_sees_its_namespace_alone(personas: Personas) -> None:
    program = service(personas)
    assert program.get("/api/v1/me").json() == {
        "username": "team/nightly",
        "is_admin": False,
        "namespaces": [{"name": "team", "role": "developer"}],
    }
    assert program.get("/api/v1/namespaces/elsewhere/jobs").status_code == 404


def test_a_service_token_stays_when_its_maker_leaves(personas: Personas) -> None:
    program = service(personas)
    personas.owner.is_active = False
    personas.owner.save()
    assert program.get("/api/v1/namespaces/team/jobs").status_code == 200


def test_a_service_token_reaches_no_account_and_no_members(personas: Personas) -> None:
    program = service(personas)
    assert program.get("/api/v1/tokens").status_code == 403
    assert program.post("/api/v1/namespaces/team/members", {}, JSON).status_code == 403


def test_a_viewer_s_service_token_submits_nothing(personas: Personas) -> None:
    assert service(personas, Role.VIEWER).post("/api/v1/namespaces/team/jobs", {}, JSON).status_code == 403


def test_a_revoked_service_token_and_its_account_are_done(personas: Personas) -> None:
    program = service(personas)
    token = ApiToken.objects.get()
    tokens.revoke_service_token(actor=personas.owner, namespace_name="team", token_id=str(token.pk))
    assert program.get("/api/v1/me").status_code == 401
    assert not User.objects.get(username="team/nightly").is_active


def test_no_person_can_take_the_name_of_a_service_account(personas: Personas) -> None:
    body = {"username": "team/nightly", "password": "a long enough passphrase"}
    assert personas.client("admin").post("/api/v1/users", body, JSON).status_code == 422


def test_a_service_token_s_name_is_its_own_for_ever(personas: Personas) -> None:
    service(personas)
    with pytest.raises(Conflict, match=pattern(messages.SERVICE_TOKEN_NAME_TAKEN)):
        service(personas)


@pytest.mark.parametrize(
    ("role", "name"), [(Role.OWNER, "nightly"), (Role.VIEWER, "Night ly"), (Role.VIEWER, "../x"), (Role.VIEWER, "")]
)
def test_what_cannot_be_a_service_token_leaves_nothing(personas: Personas, role: Role, name: str) -> None:
    with pytest.raises(ValidationFailed):
        tokens.create_service_token(actor=personas.owner, namespace_name="team", name=name, role=role)
    assert not User.objects.filter(service_of__isnull=False).exists()


def test_only_owners_make_service_tokens(personas: Personas) -> None:
    with pytest.raises(Forbidden):
        tokens.create_service_token(actor=personas.developer, namespace_name="team", name="x", role=Role.VIEWER)


def test_the_page_shows_a_service_token_once(personas: Personas) -> None:
    client = personas.client("owner")
    made = client.post("/n/team/tokens", {"name": "nightly", "role": "developer", "days": ""}).content.decode()
    assert "rgt_" in made
    page = client.get("/n/team/tokens").content.decode()
    assert "team/nightly" in page
    assert "rgt_" not in page
