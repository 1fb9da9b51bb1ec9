"""Table of the fields of a job specification, and the places that follow from it or name its fields."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given, settings

from jobs.selectors.specifications import parse
from jobs.spec.fields import FIELDS, NAMES, READING_ORDER, Field, json_schema
from jobs.spec.model import JobSpec, RoleSpec
from runtime import contract
from tests.jobs.spec.documents import bodies
from tests.properties import examples

ROOT = Path(__file__).parents[3]
PATHS = [field.path for field in FIELDS]

# Attributes of the roles that no field sets: the number of parameter servers is fixed, and they have no GPUs.
WITHOUT_A_FIELD = {"pserver.min", "pserver.max", "pserver.gpu"}

# Fields that the form leaves to the editor (files), to the number of trainers (min), or to its YAML.
WITHOUT_A_PLACE_IN_THE_FORM = {
    "files",
    "env",
    "roles.trainer.min",
    "roles.trainer.gpu",
    "roles.master.replicas",
    "roles.master.cpu",
}


def in_model(field: Field) -> str:
    return f"{field.owner}.{field.attribute}".removeprefix(".")


# --- The model -------------------------------------------------------------------------------------------------------
def test_each_attribute_of_the_model_has_one_field() -> None:
    roles = {contract.TRAINER, contract.PSERVER}
    own = {attribute.name for attribute in dataclasses.fields(JobSpec)} - roles
    of_roles = {f"{role}.{attribute.name}" for role in roles for attribute in dataclasses.fields(RoleSpec)}
    assert sorted(in_model(field) for field in FIELDS) == sorted((own | of_roles) - WITHOUT_A_FIELD)


def test_the_defaults_of_the_table_and_of_the_model_are_the_same() -> None:
    model = JobSpec("", "", RoleSpec(), RoleSpec())
    parts: dict[str, Any] = {"": model, contract.TRAINER: model.trainer, contract.PSERVER: model.pserver}
    fixed = [field for field in FIELDS if field.default is not None and not callable(field.default)]
    assert fixed
    assert [getattr(parts[field.owner], field.attribute) for field in fixed] == [field.default for field in fixed]


def test_a_document_names_each_role_of_the_contract() -> None:
    assert set(NAMES["roles"]) == {contract.TRAINER, contract.PSERVER, contract.MASTER}


def test_every_field_is_read_once() -> None:
    assert sorted(field.path for field in READING_ORDER) == sorted(set(PATHS))


def test_the_stored_specification_has_all_fields_but_the_files_and_a_usual_master() -> None:
    stored = parse({"name": "a", "files": {"train.py": ""}}).to_json()
    omitted = {"files", "roles.master.cpu", "params", "on_stall", "stall_timeout", "hold"}
    assert set(leaves(stored)) | omitted == set(PATHS)


def leaves(body: dict[str, Any], start: str = "") -> list[str]:
    """Return the paths of the values: of the mappings, only ``roles`` and each role are divided."""
    divided = {path for path in NAMES if path}
    found: list[str] = []
    for key, value in body.items():
        path = f"{start}{key}"
        found += leaves(value, f"{path}.") if path in divided else [path]
    return found


# --- JSON Schema -----------------------------------------------------------------------------------------------------
def test_the_schema_has_every_field_with_a_description() -> None:
    for field in FIELDS:
        schema = json_schema()
        for key in (*field.mapping_keys, field.name):
            schema = schema["properties"][key]
        assert schema["description"].endswith("."), field.path


@settings(max_examples=examples(12), deadline=None)
@given(bodies())
def test_an_accepted_document_and_its_stored_form_fit_the_schema(body: dict[str, Any]) -> None:
    check = jsonschema.Draft7Validator(json_schema())
    stored = json.loads(json.dumps(parse(body).to_json()))
    assert [*check.iter_errors(body), *check.iter_errors(stored)] == []


@pytest.mark.parametrize("wrong", [{}, {"name": "a", "nam": "b"}, {"name": "a", "passes": 0}, {"name": "a", "mode": 1}])
def test_the_schema_refuses_what_the_parser_refuses(wrong: dict[str, Any]) -> None:
    assert not jsonschema.Draft7Validator(json_schema()).is_valid(wrong)


# --- The form --------------------------------------------------------------------------------------------------------
def test_every_field_has_a_place_in_the_form_or_is_named_as_one_without() -> None:
    template = (ROOT / "portal/templates/jobs/new.html").read_text()
    shown = set(re.findall(r'data-path="([^"{]+)"|with path="([^"]+)"', template))
    assert {first or second for first, second in shown} == set(PATHS) - WITHOUT_A_PLACE_IN_THE_FORM


@pytest.mark.parametrize("module", ["core/spec.ts", "core/framework.ts", "new-job.ts"])
def test_the_page_names_known_fields_only(module: str) -> None:
    source = (ROOT / "frontend/src" / module).read_text()
    named = set(re.findall(r'"(roles\.\w+\.\w+)"', source))
    named |= set(re.findall(r'\b(?:at|withValue)\((?:this\.)?\w+, "([\w.]+)"', source))
    assert named
    assert named <= set(PATHS)


# --- The guide -------------------------------------------------------------------------------------------------------
def test_the_guide_explains_every_field() -> None:
    section = (ROOT / "docs/guide.md").read_text().split("## Describe a job", 1)[1].split("\n### ", 1)[0]
    example = set(leaves(yaml.safe_load(section.split("```")[1].removeprefix("yaml\n"))))
    rows = dict(re.findall(r"^\| (`[^|]+) \| (.+) \|$", section, re.MULTILINE))
    named = {name: meaning for names, meaning in rows.items() for name in re.findall(r"`([^`]+)`", names)}
    assert set(named) == {field.path.rpartition(".")[0] or field.path for field in FIELDS}
    keys = {f"{row}.{key}" for row, meaning in named.items() for key in re.findall(r"`\{?(\w+)", meaning)}
    assert set(PATHS) <= {*named, *keys, *example}
