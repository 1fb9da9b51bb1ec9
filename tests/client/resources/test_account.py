"""Tokens and namespaces of the account."""

from __future__ import annotations

import pytest

from regatta import Client
from regatta.errors import Missing
from tests.client.portal import SERVER, PaperPortal, client, ok

ME = "GET /api/v1/me"


def me(*names: str) -> dict[str, object]:
    return {"username": "ada", "is_admin": False, "namespaces": [{"name": name, "role": "owner"} for name in names]}


@pytest.mark.parametrize(("names", "default"), [(("team", "ada"), "ada"), (("team", "other"), "team")])
def test_the_default_namespace_is_that_of_the_account_or_the_first(names: tuple[str, ...], default: str) -> None:
    api, _, _ = client({ME: [ok(me(*names))]})
    assert api.namespaces.default() == default


def test_an_account_without_a_namespace_has_no_default() -> None:
    api, _, _ = client({ME: [ok(me())]})
    with pytest.raises(Missing, match="not a member of any namespace"):
        api.namespaces.default()


def test_the_namespace_of_the_client_needs_no_request() -> None:
    portal = PaperPortal({})
    assert Client(SERVER, "rgt_x", namespace="team", transport=portal).namespaces.default() == "team"
    assert portal.asked == []


def test_a_second_factor_is_sent_only_if_given() -> None:
    api, portal, _ = client({"POST /api/v1/auth/token": [ok({"token": "rgt_y"}, 201)]})
    assert api.tokens.sign_in("ada", "secret", "laptop") == "rgt_y"
    api.tokens.sign_in("ada", "secret", "laptop", code="123456")
    assert [body.get("code") for body in portal.bodies()] == [None, "123456"]


def test_the_id_of_a_token_is_one_segment_of_the_path() -> None:
    api, portal, _ = client({})
    with pytest.raises(Missing):
        api.tokens.revoke("../me")
    assert portal.asked[0].url.raw_path == b"/api/v1/tokens/..%2Fme"
