"""A job specification that is being read."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.messages import specification as messages
from jobs.spec.document import PROBLEM_LIMIT, Document
from jobs.spec.kinds import read_text

NAMES = {"": ("name", "roles"), "roles": ("trainer",), "roles.trainer": ("cpu",)}


def document(body: dict[Any, Any]) -> Document:
    return Document(body, NAMES, str)


def test_a_value_is_given_by_its_path() -> None:
    read = document({"roles": {"trainer": {"cpu": 2}}})
    assert (read.given("roles.trainer.cpu"), read.given("name")) == (2, None)


@pytest.mark.parametrize("roles", [{}, {"roles": None}, {"roles": {}}, {"roles": {"trainer": None}}])
def test_a_value_of_an_absent_mapping_is_absent(roles: dict[str, Any]) -> None:
    read = document(roles)
    assert (read.given("roles.trainer.cpu"), read.has("roles.trainer.cpu"), read.errors) == (None, False, {})


def test_a_key_with_null_is_there_and_gives_nothing() -> None:
    read = document({"name": None})
    assert (read.has("name"), read.given("name")) == (True, None)


def test_an_invalid_mapping_is_reported_once() -> None:
    read = document({"roles": ["trainer"]})
    assert [read.given("roles.trainer.cpu") for _ in range(2)] == [None, None]
    assert read.errors == {"roles": [messages.NOT_A_MAPPING_OF_NAMES()]}


def test_unknown_names_are_reported_when_their_mapping_is_first_used() -> None:
    read = document({"nam": 1, "roles": {"trainer": {"cpus": 1}}})
    assert list(read.errors) == ["nam"]
    read.given("roles.trainer.cpu")
    read.given("roles.trainer.cpu")
    assert {path: len(found) for path, found in read.errors.items()} == {"nam": 1, "roles.trainer.cpus": 1}


def test_a_value_that_is_refused_is_replaced_by_the_default() -> None:
    read = document({"name": 7})
    assert read.read("name", read_text, "usual") == "usual"
    assert read.errors == {"name": [messages.NOT_TEXT()]}


def test_fields_beyond_the_limit_are_not_reported() -> None:
    read = document({})
    for number in range(PROBLEM_LIMIT + 1):
        read.fail(f"field{number}", "")
    assert len(read.errors) == PROBLEM_LIMIT
