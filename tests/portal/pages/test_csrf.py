"""CSRF protection: every route that could change data is called without the token."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.test import Client
from django.urls import get_resolver

from tests.factories import make_token
from tests.jobs.api.test_authorisation import NONE, routes
from tests.personas import Personas

pytestmark = pytest.mark.django_db
CHANGING = ("post", "put", "patch", "delete")
TEMPLATES = Path(__file__).resolve().parent.parent.parent.parent / "portal" / "templates"
# These read no session: the caller sends a token of an attempt, or a password.
SESSIONLESS = ("/ingest/", "/api/v1/auth/")
INGEST_DOWNLOADS = re.compile(r"/ingest/.*/(stop|code|data|data/.*)")


def addresses() -> list[str]:
    """Yield one address of each route."""
    numbers = {"uuid": NONE, "int": "1"}
    return [
        "/" + re.sub(r"<(\w+):\w+>", lambda found: numbers.get(found[1], "team"), route)
        for route in routes(get_resolver())
    ]


def stale(answer: object) -> bool:
    """Return whether the missing token, and nothing else, caused the refusal."""
    message = "This page was open for too long"
    return answer.status_code == 403 and message in answer.content.decode()  # type: ignore[attr-defined]


@pytest.mark.invariant("A browser changes nothing without a CSRF token.")
def test_every_route_that_could_change_something_asks_a_browser_for_its_token(personas: Personas) -> None:
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(personas.admin)
    # For a page Django checks the method first; for the API the framework does so after it has found the view.
    requests = [
        (method, path)
        for path in addresses()
        for method in (CHANGING if path.startswith("/api/v1/") else ("post",))
        if not path.startswith(SESSIONLESS)
    ]
    let_through = [
        (method, path)
        for method, path in requests
        if not stale(getattr(browser, method)(path, {}, content_type="application/json"))
    ]
    assert let_through == []
    assert len(requests) > 200


def test_anonymous_requests_need_a_token_where_a_session_could_begin() -> None:
    """Otherwise another site could sign a person in with another account."""
    browser = Client(enforce_csrf_checks=True)
    forms = ("/sign-in", "/sign-in/code", "/sign-in/with/oidc", "/sign-up", "/sign-up/confirm/x", "/password")
    assert [path for path in forms if not stale(browser.post(path, {}))] == []


def test_routes_without_a_csrf_token_do_not_use_the_session(personas: Personas) -> None:
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(personas.admin)
    statuses = {
        path: browser.post(path, {}, content_type="application/json").status_code
        for path in addresses()
        if path.startswith(SESSIONLESS)
    }
    without_token = {path: 405 if INGEST_DOWNLOADS.fullmatch(path) else 401 for path in statuses}
    assert statuses == {path: 422 if path.startswith("/api/") else without_token[path] for path in statuses}


def test_a_program_with_a_token_needs_none(personas: Personas) -> None:
    program = Client(enforce_csrf_checks=True, headers={"authorization": f"Bearer {make_token(personas.admin)}"})
    requests = [(method, path) for path in addresses() for method in CHANGING if path.startswith("/api/v1/")]
    assert not [one for one in requests if stale(getattr(program, one[0])(one[1], {}, content_type="application/json"))]


def test_every_form_that_posts_to_us_carries_the_token() -> None:
    form = re.compile(r"<form\b[^>]*method=[\"']?post.*?</form>", re.DOTALL | re.IGNORECASE)
    found = [(path.name, text) for path in TEMPLATES.rglob("*.html") for text in form.findall(path.read_text())]
    assert [name for name, text in found if "{% csrf_token %}" not in text] == []
    assert len(found) > 30
