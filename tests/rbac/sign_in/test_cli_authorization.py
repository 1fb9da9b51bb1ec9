"""Authorisation of the command on a computer."""

from __future__ import annotations

import base64
import hashlib
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from django.test import Client

from portal.common.errors import Conflict, ValidationFailed
from rbac import messages
from rbac.models import ApiToken, Connection
from rbac.sign_in import cli_authorization
from tests.messages import mentions, pattern
from tests.personas import Personas

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 1, 1, tzinfo=UTC)
VERIFIER = "v" * 43
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).rstrip(b"=").decode()
REQUEST = {"name": "regatta on laptop", "challenge": CHALLENGE, "state": "s1"}


def granted(personas: Personas) -> str:
    return cli_authorization.grant(actor=personas.viewer, name="laptop", challenge=CHALLENGE, days=30, now=NOW)


def test_a_code_is_exchanged_for_a_token_of_the_account_that_agreed(personas: Personas) -> None:
    token, secret = cli_authorization.exchange(code=granted(personas), verifier=VERIFIER, now=NOW)
    assert (token.user, token.name, token.expires) == (personas.viewer, "laptop", NOW + timedelta(days=30))
    assert secret.startswith("rgt_")


def test_a_code_is_good_once(personas: Personas) -> None:
    code = granted(personas)
    cli_authorization.exchange(code=code, verifier=VERIFIER, now=NOW)
    with pytest.raises(Conflict):
        cli_authorization.exchange(code=code, verifier=VERIFIER, now=NOW)
    assert ApiToken.objects.count() == 1


@pytest.mark.parametrize("verifier", ["w" * 43, "", "v" * 42])
def test_without_its_verifier_a_code_is_nothing_and_is_spent(personas: Personas, verifier: str) -> None:
    code = granted(personas)
    for tried in (verifier, VERIFIER):
        with pytest.raises(Conflict):
            cli_authorization.exchange(code=code, verifier=tried, now=NOW)


def test_a_code_is_too_old_after_two_minutes(personas: Personas) -> None:
    with pytest.raises(Conflict, match=pattern(messages.LOGIN_CODE_SPENT)):
        cli_authorization.exchange(code=granted(personas), verifier=VERIFIER, now=NOW + cli_authorization.LIFETIME)


def test_a_code_of_an_account_that_was_closed_meanwhile_is_nothing(personas: Personas) -> None:
    code = granted(personas)
    personas.viewer.is_active = False
    personas.viewer.save()
    with pytest.raises(Conflict):
        cli_authorization.exchange(code=code, verifier=VERIFIER, now=NOW)


def test_only_digests_are_stored(personas: Personas) -> None:
    code = granted(personas)
    kept = Connection.objects.get()
    assert code not in (kept.digest, kept.challenge)
    assert VERIFIER not in (kept.digest, kept.challenge)


@pytest.mark.parametrize(("name", "challenge"), [("", CHALLENGE), ("n" * 101, CHALLENGE), ("x", "short")])
def test_a_request_that_is_not_from_the_command_is_refused(personas: Personas, name: str, challenge: str) -> None:
    with pytest.raises(ValidationFailed):
        cli_authorization.grant(actor=personas.viewer, name=name, challenge=challenge, days=30, now=NOW)


# --- The page --------------------------------------------------------------------------------------------------------
def test_the_browser_brings_the_code_to_the_port_of_its_own_computer(personas: Personas) -> None:
    answer = personas.client("viewer").post("/connect", {**REQUEST, "port": "40001"})
    target = urlsplit(answer["Location"])
    assert (answer.status_code, target.netloc, parse_qs(target.query)["state"]) == (302, "127.0.0.1:40001", ["s1"])
    body = {"code": parse_qs(target.query)["code"][0], "verifier": VERIFIER}
    response = Client().post("/api/v1/auth/exchange", body, content_type="application/json")
    me = Client().get("/api/v1/me", headers={"Authorization": f"Bearer {response.json()['token']}"})
    assert me.json()["username"] == personas.viewer.username


def test_the_page_lets_its_form_lead_to_that_port_alone(personas: Personas) -> None:
    page = personas.client("viewer").get("/connect", {**REQUEST, "port": "40001"})
    assert "form-action 'self' http://127.0.0.1:40001;" in page["Content-Security-Policy"]


def test_looking_at_the_page_grants_nothing(personas: Personas) -> None:
    assert "regatta on laptop" in personas.client("viewer").get("/connect", REQUEST).content.decode()
    assert not Connection.objects.exists()


def test_without_a_port_the_page_shows_the_code(personas: Personas) -> None:
    page = personas.client("viewer").post("/connect", REQUEST)
    assert page.status_code == 200
    assert 'id="code"' in page.content.decode()


@pytest.mark.parametrize("port", ["80", "99999999", "evil.example", "1024@evil.example", "-1", "４０００１"])
def test_an_invalid_port_is_refused_with_a_message(personas: Personas, port: str) -> None:
    page = personas.client("viewer").post("/connect", {**REQUEST, "port": port})
    assert page.status_code == 422
    assert mentions(page.content.decode(), messages.LOGIN_ADDRESS_INVALID)


def test_an_anonymous_person_signs_in_first_and_returns(db: None) -> None:
    answer = Client().get("/connect", REQUEST)
    assert answer.status_code == 302
    assert "next=/connect%3F" in answer["Location"]


# --- Signing out -----------------------------------------------------------------------------------------------------
def test_a_token_revokes_itself(personas: Personas) -> None:
    _, secret = (
        cli_authorization.exchange(code=granted(personas), verifier=VERIFIER, now=NOW.replace(year=2100))
        if False
        else cli_authorization.exchange(code=granted(personas), verifier=VERIFIER, now=NOW)
    )
    ApiToken.objects.update(expires=None)
    headers = {"Authorization": f"Bearer {secret}"}
    assert Client().delete("/api/v1/tokens/current", headers=headers).status_code == 204
    assert Client().get("/api/v1/me", headers=headers).status_code == 401
