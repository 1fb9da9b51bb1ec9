from __future__ import annotations

import pytest
from django.contrib.auth.models import AnonymousUser

from datasets import messages, selectors
from portal.common.errors import NotFound
from tests.messages import pattern
from tests.personas import EVERYBODY, Personas


def test_the_shipped_datasets_are_in_the_catalogue(personas: Personas) -> None:
    names = [offer.name for offer in selectors.catalogue(personas.viewer, "team")]
    assert names == ["public/diabetes", "public/digits"]


def test_an_anonymous_user_has_no_catalogue() -> None:
    assert selectors.catalogue(AnonymousUser(), "team") == []


def test_a_name_that_is_nearly_right_is_suggested() -> None:
    with pytest.raises(NotFound, match=pattern(messages.DID_YOU_MEAN, name="public/digits or public/diabetes")):
        selectors.find("public/digit")


@pytest.mark.parametrize("name", ["", "..", "public/../public/digits", "/etc", "storage", "public", "public/digits/"])
def test_only_datasets_have_names(name: str) -> None:
    with pytest.raises(NotFound):
        selectors.find(name)


def test_the_data_path_leads_to_the_datasets() -> None:
    assert all((path / "public" / "digits").is_dir() for path in selectors.data_path())


def test_a_preview_is_no_longer_than_requested() -> None:
    info = selectors.find("public/digits")
    first, second = selectors.preview(info, "train", 2)
    assert first["label"] in range(10) and second["label"] in range(10)


@pytest.mark.parametrize("persona", EVERYBODY)
def test_the_public_list_is_for_everybody_who_signed_in(personas: Personas, persona: str) -> None:
    answer = personas.client(persona).get("/api/v1/datasets")
    assert answer.status_code == (401 if persona == "nobody" else 200)


def test_the_list_names_the_datasets_and_not_their_paths(personas: Personas) -> None:
    body = personas.client("viewer").get("/api/v1/datasets").json()
    assert [found["full_name"] for found in body["results"]] == ["public/diabetes", "public/digits"]
    assert body["next"] is None
    assert body["results"][1]["records"] == 1797
    assert "directory" not in body["results"][0]


def test_one_dataset_comes_with_some_records(personas: Personas) -> None:
    body = personas.client("viewer").get("/api/v1/datasets/public/digits").json()
    assert body["title"] and body["source"] and body["licence"]
    assert 0 < len(body["preview"]) <= 8


def test_an_unknown_dataset_is_a_problem_with_the_nearest_names(personas: Personas) -> None:
    answer = personas.client("viewer").get("/api/v1/datasets/public/digit")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert "public/digits" in answer.json()["detail"]
