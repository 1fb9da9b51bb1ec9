from __future__ import annotations

import re

import pytest
from django.test import Client, RequestFactory
from pytest_django import Settings
from rest_framework import exceptions as drf

from portal.common.errors import Conflict, QuotaExceeded, TooManyRequests, ValidationFailed
from portal.common.messages import requests as messages
from portal.common.parsers import is_deeper
from portal.common.problems import content_security_policy, problem_from_exception, problem_of
from portal.common.trusted_proxies import network
from tests.messages import mentions
from tests.personas import Personas

pytestmark = pytest.mark.django_db
PROBLEM = "application/problem+json"


def test_an_unknown_address_of_the_api_is_a_problem_document() -> None:
    answer = Client().get("/api/v1/nothing-here")
    assert (answer.status_code, answer.headers["Content-Type"]) == (404, PROBLEM)
    assert {"type", "title", "status", "code", "detail"} <= set(answer.json())


def test_an_unknown_page_is_a_page() -> None:
    answer = Client().get("/nothing-here")
    assert (answer.status_code, answer.headers["Content-Type"]) == (404, "text/html; charset=utf-8")


def test_a_body_that_is_not_json_is_an_error(personas: Personas) -> None:
    answer = personas.client("admin").post("/api/v1/namespaces", "{", content_type="application/json")
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed")


@pytest.mark.parametrize("path", ["auth/token", "auth/exchange", "namespaces", "tokens", "namespaces/team/jobs"])
@pytest.mark.parametrize("depth", [65, 3000, 100_000])
def test_a_body_that_nests_too_deep_is_malformed(personas: Personas, path: str, depth: int) -> None:
    client = personas.client("admin")
    answer = client.post(f"/api/v1/{path}", "[" * depth + "]" * depth, content_type="application/json")
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed")
    assert mentions(answer.json()["detail"], messages.BODY_NESTED_TOO_DEEPLY, limit=64)


@pytest.mark.parametrize(
    ("value", "depth"), [(1, 0), ([], 1), ({}, 1), ([1, "["], 1), ([[]], 2), ({"a": [{}]}, 3), ([[[]], 1], 3)]
)
def test_depth_counts_lists_and_objects(value: object, depth: int) -> None:
    assert not is_deeper(value, depth)
    assert not depth or is_deeper(value, depth - 1)


@pytest.mark.parametrize("path", ["/", "/n/team/jobs", "/api/v1/me", "/api/v1/jobs", "/sign-in", "/nothing-here"])
def test_responses_that_are_not_public_are_not_cached(personas: Personas, path: str) -> None:
    for name in ("owner", "nobody"):
        assert "no-store" in personas.client(name).get(path).headers["Cache-Control"]


def test_an_unsupported_method_is_an_error(personas: Personas) -> None:
    answer = personas.client("admin").delete("/api/v1/me")
    assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")


def test_our_errors_keep_their_numbers_and_positions() -> None:
    body = problem_of(QuotaExceeded("Too much.", numbers={"cpu": {"needed": 3}}))
    assert (body["status"], body["code"], body["numbers"]) == (409, "quota_exceeded", {"cpu": {"needed": 3}})


def test_refused_input_names_each_field() -> None:
    answer = problem_from_exception(ValidationFailed({"roles.trainer.memory": ["Write 512Mi."]}), {})
    assert answer is not None
    assert answer.data["errors"] == {"roles.trainer.memory": ["Write 512Mi."]}
    assert answer.data["detail"] == "roles.trainer.memory: Write 512Mi."


def test_nested_fields_of_the_framework_become_paths() -> None:
    error = drf.ValidationError({"rows": [{}, {"name": ["Too long."]}], "other": ["Missing."]})
    answer = problem_from_exception(error, {})
    assert answer is not None
    assert answer.data["errors"] == {"rows.1.name": ["Too long."], "other": ["Missing."]}


def test_a_throttled_caller_gets_retry_after() -> None:
    answer = problem_from_exception(TooManyRequests("Wait.", retry_after=12.4), {})
    assert answer is not None
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "12")


def test_an_internal_error_becomes_a_500() -> None:
    assert problem_from_exception(RuntimeError("oops"), {}) is None


def test_an_internal_error_returns_a_request_number_and_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("portal.health.connection", None)
    browser = Client(raise_request_exception=False)
    answer = browser.get("/readyz")
    assert answer.status_code == 500
    assert "NoneType" not in answer.content.decode()


def test_an_error_in_a_plain_view_becomes_a_document(monkeypatch: pytest.MonkeyPatch) -> None:
    from portal.common.problems import answer_to

    answer = answer_to(RequestFactory().post("/ingest/v1/x"), Conflict("Not now.", last=7))
    assert (answer.status_code, answer.headers["Content-Type"]) == (409, PROBLEM)
    assert b'"last": 7' in answer.content


def test_every_answer_carries_the_strict_headers() -> None:
    headers = Client().get("/healthz").headers
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Referrer-Policy"] == "same-origin"


def test_the_nonce_is_new_for_each_answer() -> None:
    nonces = {
        re.search(r"'nonce-([^']+)'", Client().get("/healthz").headers["Content-Security-Policy"])[1] for _ in range(3)
    }
    assert len(nonces) == 3


def test_the_policy_allows_sockets_to_the_same_host_only() -> None:
    policy = content_security_policy("n", "portal.example:8000")
    assert "connect-src 'self' ws://portal.example:8000 wss://portal.example:8000;" in policy
    assert "unsafe" not in policy


def test_a_request_keeps_the_number_that_a_trusted_proxy_gave_it(settings: Settings) -> None:
    settings.TRUSTED_PROXIES = (network("127.0.0.1"),)
    assert Client().get("/healthz", headers={"x-request-id": "abc-1"}).headers["X-Request-ID"] == "abc-1"


def test_a_request_number_of_another_caller_is_replaced() -> None:
    assert Client().get("/healthz", headers={"x-request-id": "abc-1"}).headers["X-Request-ID"] != "abc-1"


def test_a_request_number_that_could_forge_a_log_line_is_replaced(settings: Settings) -> None:
    settings.TRUSTED_PROXIES = (network("127.0.0.1"),)
    assert Client().get("/healthz", headers={"x-request-id": "a b"}).headers["X-Request-ID"] != "a b"


def test_a_stale_form_gets_a_page_with_a_way_on() -> None:
    answer = Client(enforce_csrf_checks=True).post("/sign-in", {"username": "x"})
    assert answer.status_code == 403
    assert "/sign-in" in answer.content.decode()


def test_the_portal_reports_that_it_is_alive_and_ready() -> None:
    assert [Client().get(path).status_code for path in ("/healthz", "/readyz")] == [200, 200]


def test_a_body_beyond_the_limit_is_reported_as_too_large(personas: Personas, settings: Settings) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 10
    answer = personas.client("admin").post("/api/v1/namespaces", {"name": "a" * 20}, content_type="application/json")
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


def test_a_body_without_its_length_is_not_taken_for_an_empty_one(personas: Personas) -> None:
    headers = {"transfer-encoding": "chunked"}
    answer = personas.client("admin").post("/api/v1/namespaces", b"", content_type="application/json", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (411, "length_required")
