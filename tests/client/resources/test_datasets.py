"""Datasets: lists, and what an upload or a download begins with."""

from __future__ import annotations

from pathlib import Path

import pytest

from regatta.errors import Missing, PortalError
from tests.client.portal import client, ok

DATASET = {"namespace": "ada", "name": "mine"}
MINE = "/api/v1/datasets/ada/mine"


def test_a_dataset_that_does_not_exist_is_created_once() -> None:
    create = "POST /api/v1/namespaces/ada/datasets"
    api, portal, _ = client({create: [ok(DATASET, 201)]})
    assert api.datasets.get_or_create("ada/mine").full_name == "ada/mine"
    assert portal.bodies() == [{"name": "mine", "description": ""}]


def test_a_dataset_that_exists_is_not_created() -> None:
    api, portal, _ = client({f"GET {MINE}": [ok(DATASET)]})
    api.datasets.get_or_create("ada/mine")
    assert [request.method for request in portal.asked] == ["GET"]


@pytest.mark.parametrize(("namespace", "path"), [("", "/api/v1/datasets"), ("ada", "/api/v1/namespaces/ada/datasets")])
def test_a_list_is_of_one_namespace_or_of_all(namespace: str, path: str) -> None:
    api, _, _ = client({f"GET {path}": [ok({"results": [DATASET], "next": None})]})
    assert [found.full_name for found in api.datasets.list(namespace)] == ["ada/mine"]


def test_a_dataset_without_a_sealed_version_cannot_be_downloaded(tmp_path: Path) -> None:
    api, _, _ = client({f"GET {MINE}": [ok(DATASET)]})
    with pytest.raises(Missing, match="ada/mine has no sealed version yet"):
        api.datasets.download("ada/mine", tmp_path)


def test_a_name_without_a_namespace_is_refused_before_any_request() -> None:
    api, portal, _ = client({})
    with pytest.raises(PortalError, match="named namespace/name"):
        api.datasets.versions.get("mine", 1)
    assert portal.asked == []
