"""The API document is complete, and every GET in it answers odd parameters without an internal error."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from django.urls import URLResolver, get_resolver
from drf_spectacular.drainage import GENERATOR_STATS, reset_generator_stats
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.validation import validate_schema

from rbac.scopes import Scope
from tests.factories import make_job
from tests.personas import Personas

pytestmark = pytest.mark.django_db
ODD = (
    "",
    "0",
    "-1",
    "1e400",
    "nan",
    "9" * 400,
    "\x00",
    "\ud7ff\U0001f6a3",
    "../../etc/passwd",
    "[",
    "%",
    "' OR 1=1 --",
)


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    reset_generator_stats()
    made: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)
    return made


def test_it_is_valid_and_made_without_a_warning(document: dict[str, Any]) -> None:
    validate_schema(document)
    assert not GENERATOR_STATS


def test_the_body_of_closing_a_namespace_is_described(document: dict[str, Any]) -> None:
    body = document["paths"]["/api/v1/namespaces/{ns}"]["delete"]["requestBody"]
    assert body["content"]["application/json"]["schema"]["required"] == ["name"]


def test_the_document_describes_every_scope(document: dict[str, Any]) -> None:
    assert [scope for scope in Scope if f"`{scope}`" not in document["info"]["description"]] == []


def routes(resolver: URLResolver, prefix: str = "/") -> Iterator[str]:
    for pattern in resolver.url_patterns:
        route = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from routes(pattern, route)
        else:
            yield route


def test_every_route_of_the_api_is_in_it(document: dict[str, Any]) -> None:
    there = [route for route in routes(get_resolver()) if route.startswith("/api/v1/")]
    assert len(there) == len(document["paths"])


def test_every_call_describes_its_answer_and_its_errors(document: dict[str, Any]) -> None:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            answers = operation["responses"]
            assert "application/problem+json" in answers["default"]["content"], (method, path)
            assert any(code.startswith("2") for code in answers), (method, path)


def questions(document: dict[str, Any], job: str) -> Iterator[tuple[str, str]]:
    """Return the address of every GET, with each of its parameters."""
    places = {
        "{ns}/{name}": "team/mine",
        "{ns}": "team",
        "{number}": "1",
        "{job_id}": job,
        "public/{name}": "public/digits",
        "{name}": "model.npz",
        "{path}": "no.file",
    }
    for path, operations in document["paths"].items():
        for place, value in places.items():
            path = path.replace(place, value)
        named = {one["name"] for one in operations.get("get", {}).get("parameters", ()) if one["in"] == "query"}
        yield from ((path, name) for name in sorted(named | {"limit", "cursor"}) if "get" in operations)


@pytest.mark.invariant("No query parameter makes the API fail with a server error.")
def test_no_odd_question_brings_a_call_down(document: dict[str, Any], personas: Personas) -> None:
    job = make_job(personas.namespace, personas.owner, spec={"name": "digits"})
    client = Client(raise_request_exception=False)
    client.force_login(personas.admin)
    questions_asked = [
        one for one in questions(document, str(job.pk)) if not one[0].endswith("/files")
    ]  # there is no snapshot
    fallen = [
        (address, name, value)
        for (address, name), value in itertools.product(questions_asked, ODD)
        if client.get(address, {name: value}).status_code >= 500
    ]
    assert fallen == []
    assert len(questions_asked) > 30
