from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client

from portal.common.clock import now
from rbac.models import ApiToken
from tests.factories import make_token, make_user
from tests.personas import EVERYBODY, Personas

pytestmark = pytest.mark.django_db
PASSWORD = "a long enough password"
JSON = "application/json"


def bearer(secret: str) -> Client:
    return Client(headers={"authorization": f"Bearer {secret}"})


def as_everybody(personas: Personas, method: str, path: str, body: object = None) -> dict[str, int]:
    """Return the status of the answer to each persona, all with the same request."""
    return {
        name: getattr(personas.client(name), method)(path, data=body, content_type=JSON).status_code
        for name in EVERYBODY
    }


def test_a_password_buys_a_token_that_works() -> None:
    make_user("carol", password=PASSWORD)
    answer = Client().post(
        "/api/v1/auth/token", {"username": "carol", "password": PASSWORD, "name": "laptop"}, content_type=JSON
    )
    assert answer.status_code == 201
    me = bearer(answer.json()["token"]).get("/api/v1/me")
    assert me.json() == {
        "username": "carol",
        "is_admin": False,
        "namespaces": [{"name": "carol", "role": "owner"}],
    }


def test_a_slash_at_the_end_loses_no_post() -> None:
    make_user("carol", password=PASSWORD)
    answer = Client().post("/api/v1/auth/token/", {"username": "carol", "password": PASSWORD}, content_type=JSON)
    assert answer.status_code == 201


def test_a_wrong_password_is_401_in_words() -> None:
    answer = Client().post("/api/v1/auth/token", {"username": "carol", "password": "x"}, content_type=JSON)
    assert (answer.status_code, answer.json()["code"]) == (401, "not_signed_in")


def test_too_many_wrong_passwords_are_429_with_a_time_to_wait(settings) -> None:
    settings.AXES_FAILURE_LIMIT = 2
    body = {"username": "carol", "password": "x"}
    Client().post("/api/v1/auth/token", body, content_type=JSON)
    answer = Client().post("/api/v1/auth/token", body, content_type=JSON)
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "60")


@pytest.mark.parametrize(
    "fields",
    [
        {"revoked": now() - timedelta(seconds=1)},
        {"expires": now() - timedelta(seconds=1)},
    ],
)
def test_a_token_past_its_time_is_refused(fields: dict) -> None:
    answer = bearer(make_token(make_user(), **fields)).get("/api/v1/me")
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")


def test_a_token_of_a_closed_account_is_refused() -> None:
    user = make_user()
    secret = make_token(user)
    user.is_active = False
    user.save()
    assert bearer(secret).get("/api/v1/me").status_code == 401


def test_use_of_a_token_is_noted() -> None:
    secret = make_token(make_user())
    bearer(secret).get("/api/v1/me")
    assert ApiToken.objects.get().last_used is not None


def test_reading_the_own_account_needs_sign_in(personas: Personas) -> None:
    assert as_everybody(personas, "get", "/api/v1/me") == {
        "admin": 200, "owner": 200, "developer": 200, "viewer": 200, "stranger": 200, "nobody": 401,
    }  # fmt: skip


def test_opening_accounts_needs_the_role(personas: Personas) -> None:
    assert as_everybody(personas, "post", "/api/v1/users", {"username": "eve", "password": PASSWORD}) == {
        "admin": 201, "owner": 403, "developer": 403, "viewer": 403, "stranger": 403, "nobody": 401,
    }  # fmt: skip


def test_a_refused_account_names_each_wrong_field(personas: Personas) -> None:
    body = {"username": "not a name", "email": "x", "password": "short"}
    answer = personas.client("admin").post("/api/v1/users", body, content_type=JSON)
    assert (answer.status_code, answer.json()["code"]) == (422, "validation_failed")
    assert "email" in answer.json()["errors"]


def test_making_namespaces_needs_the_role(personas: Personas) -> None:
    assert as_everybody(personas, "post", "/api/v1/namespaces", {"name": "vision"}) == {
        "admin": 201, "owner": 403, "developer": 403, "viewer": 403, "stranger": 403, "nobody": 401,
    }  # fmt: skip


def test_a_name_with_spaces_is_refused_and_a_taken_one_conflicts(personas: Personas) -> None:
    admin = personas.client("admin")
    assert admin.post("/api/v1/namespaces", {"name": "my team"}, content_type=JSON).status_code == 422
    assert admin.post("/api/v1/namespaces", {"name": "team"}, content_type=JSON).status_code == 409


def test_everybody_lists_only_their_own_namespaces(personas: Personas) -> None:
    def names(persona: str) -> list[str]:
        return [namespace["name"] for namespace in personas.client(persona).get("/api/v1/namespaces").json()["results"]]

    assert names("viewer") == ["team"]
    assert names("stranger") == ["elsewhere"]
    assert names("admin") == ["elsewhere", "team"]


def test_seeing_the_members_needs_the_role(personas: Personas) -> None:
    assert as_everybody(personas, "get", "/api/v1/namespaces/team/members") == {
        "admin": 200, "owner": 200, "developer": 200, "viewer": 200, "stranger": 404, "nobody": 401,
    }  # fmt: skip


def test_adding_members_needs_the_role(personas: Personas) -> None:
    make_user("newcomer")
    body = {"username": "newcomer", "role": "viewer"}
    assert as_everybody(personas, "post", "/api/v1/namespaces/team/members", body) == {
        "admin": 201, "owner": 201, "developer": 403, "viewer": 403, "stranger": 404, "nobody": 401,
    }  # fmt: skip


def test_a_stranger_cannot_add_themselves(personas: Personas) -> None:
    body = {"username": "stranger", "role": "owner"}
    answer = personas.client("stranger").post("/api/v1/namespaces/team/members", body, content_type=JSON)
    assert answer.status_code == 404


@pytest.mark.parametrize(
    ("persona", "status"),
    [("admin", 204), ("owner", 204), ("developer", 403), ("stranger", 404), ("nobody", 401)],
)
def test_removing_a_member_needs_the_role(personas: Personas, persona: str, status: int) -> None:
    assert personas.client(persona).delete("/api/v1/namespaces/team/members/viewer").status_code == status


def test_tokens_are_listed_by_pages_without_secrets(personas: Personas) -> None:
    secrets = [make_token(personas.owner, name=f"token {number}") for number in range(3)]
    client = personas.client("owner")
    first = client.get("/api/v1/tokens?limit=2").json()
    second = client.get(f"/api/v1/tokens?limit=2&cursor={first['next']}").json()
    assert [row["name"] for row in first["results"] + second["results"]] == ["token 2", "token 1", "token 0"]
    assert second["next"] is None
    assert not any(secret in str(first) + str(second) for secret in secrets)


def test_a_revoked_token_stops_working_and_is_found_by_its_owner_only(personas: Personas) -> None:
    secret = make_token(personas.owner)
    path = f"/api/v1/tokens/{ApiToken.objects.get().pk}"
    assert personas.client("admin").delete(path).status_code == 404
    assert personas.client("nobody").delete(path).status_code == 401
    assert personas.client("owner").delete(path).status_code == 204
    assert bearer(secret).get("/api/v1/me").status_code == 401


def test_a_browser_cannot_post_without_its_csrf_token(personas: Personas) -> None:
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(personas.admin)
    answer = browser.post("/api/v1/namespaces", {"name": "vision"}, content_type=JSON)
    assert (answer.status_code, answer.json()["code"]) == (403, "stale_form")
