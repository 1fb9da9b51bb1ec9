"""Previews: created when a version is sealed, and visible to users who may read it."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from datasets import garbage_collection
from datasets import messages as datasets_messages
from datasets.indexing import indexing, previews
from datasets.models import Version
from datasets.storage import default_storage
from datasets.storage.base import StorageError
from portal.common.clock import now
from runtime.messages import data as data_messages
from tests.datasets.conftest import Uploader
from tests.datasets.indexing.test_record_table import GIF, PNG
from tests.messages import mentions
from tests.personas import Personas

pytestmark = pytest.mark.django_db
MINE = "/api/v1/datasets/team/mine"
PREVIEW = f"{MINE}/versions/1/preview"
CSV = b"height,name\n1.5,ada\n2,grace\n"


def seal(uploader: Uploader, **files: bytes) -> Version:
    for name, content in files.items():
        uploader.upload(name.replace("__", "/").replace("_", "."), content)
    indexing.index(uploader.seal().pk)
    version = Version.objects.get(dataset__name=uploader.name, number=uploader.number)
    assert version.state == "sealed", version.why
    return version


def preview(client: Client, path: str = PREVIEW, **query: Any) -> Any:
    answer = client.get(path, query)
    assert answer.status_code == 200, answer.content
    return answer.json()


def test_a_sealed_version_shows_its_first_records_and_totals(uploader: Uploader, personas: Personas) -> None:
    seal(uploader, train__a_csv=CSV, train__b_csv=CSV, README_md=b"read me")
    assert preview(personas.client("viewer")) == {
        "format": "csv",
        "file": "train/a.csv",
        "columns": [{"name": "height", "type": "number"}, {"name": "name", "type": "text"}],
        "more_columns": 0,
        "records": [["1.5", "ada"], ["2", "grace"]],
        "pictures": [],
        "statistics": {"records": 4, "size": 2 * len(CSV) + 7, "files": 3, "chunks": 2},
        "why": "",
    }


def test_the_requested_number_of_records_is_returned(uploader: Uploader, personas: Personas) -> None:
    seal(uploader, a_txt=b"".join(b"%d\n" % number for number in range(200)))
    viewer = personas.client("viewer")
    assert [len(preview(viewer, **query)["records"]) for query in ({}, {"limit": 1}, {"limit": 100})] == [20, 1, 100]
    for wrong in (0, 101, "x"):
        assert viewer.get(PREVIEW, {"limit": wrong}).status_code == 422


def test_the_files_that_a_list_names_are_shown_as_pictures(uploader: Uploader, personas: Personas) -> None:
    seal(uploader, set__a_png=PNG, set__b__c_gif=GIF, set__train_list=b"a.png\t3\nb/c.gif\t5\n")
    found = preview(personas.client("viewer"))
    assert (found["format"], [row[1] for row in found["records"]]) == ("list", [3, 5])
    assert [picture["record"] for picture in found["pictures"]] == [0, 1]
    assert [picture["record"] for picture in preview(personas.client("viewer"), limit=1)["pictures"]] == [0]


def test_pictures_without_a_list_are_shown_all_the_same(uploader: Uploader, personas: Personas) -> None:
    seal(uploader, a_png=PNG, b_bin=b"no picture", c_gif=GIF)
    found = preview(personas.client("viewer"))
    assert (found["format"], [row[0] for row in found["records"]]) == ("files", ["a.png", "c.gif"])
    assert len(found["pictures"]) == 2 and found["statistics"]["records"] is None


def test_an_empty_preview_is_shown_as_empty(uploader: Uploader, personas: Personas) -> None:
    seal(uploader, b_bin=b"\0\1")
    found = preview(personas.client("viewer"))
    assert (found["records"], found["columns"], found["statistics"]["files"]) == ([], [], 1)


def test_a_shipped_dataset_has_a_preview_too(personas: Personas) -> None:
    digits = preview(personas.client("stranger"), "/api/v1/datasets/public/digits/versions/1/preview", limit=3)
    assert (len(digits["records"]), len(digits["pictures"])) == (3, 3)
    assert digits["statistics"] == {"records": 1797, "size": 57918 + 14441, "files": 2, "chunks": 25}
    for path in ("digits/versions/2", "none/versions/1"):
        assert personas.client("stranger").get(f"/api/v1/datasets/public/{path}/preview").status_code == 404


def test_a_preview_is_seen_by_those_who_may_read_the_version(uploader: Uploader, personas: Personas) -> None:
    everybody = ("admin", "developer", "viewer", "stranger", "nobody")
    statuses = {name: personas.client(name).get(PREVIEW).status_code for name in everybody}
    assert statuses == dict.fromkeys(everybody[:4], 404) | {"nobody": 401}
    seal(uploader, a_csv=CSV)
    statuses = {name: personas.client(name).get(PREVIEW).status_code for name in everybody}
    assert statuses == dict.fromkeys(everybody[:3], 200) | {"stranger": 404, "nobody": 401}


def test_the_reason_for_a_short_preview_is_in_the_readers_language(uploader: Uploader, personas: Personas) -> None:
    seal(uploader, a_jsonl=b'{"a": 1}\n{"a"\n')
    client = personas.client("viewer")
    assert mentions(preview(client)["why"], data_messages.JSON_LINE_INVALID)
    chinese = client.get(PREVIEW, headers={"accept-language": "zh-hans"}).json()["why"]
    assert "JSON" in chinese and not mentions(chinese, data_messages.JSON_LINE_INVALID)


def test_a_failed_preview_does_not_stop_sealing(
    uploader: Uploader, personas: Personas, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise StorageError("The disk is full.")

    monkeypatch.setattr(previews, "_first_records", fail)
    seal(uploader, a_csv=CSV)
    answer = personas.client("viewer").get(PREVIEW)
    assert answer.status_code == 404 and mentions(answer.json()["detail"], datasets_messages.PREVIEW_NOT_FOUND)


def test_a_preview_is_deleted_with_its_version(uploader: Uploader, personas: Personas) -> None:
    seal(uploader, a_csv=CSV)
    assert [stat.key.partition("/")[0] for stat in default_storage().list("previews")] == ["previews"]
    personas.client("developer").delete(MINE)
    garbage_collection.purge(now())
    assert list(default_storage().list("previews")) == []


def test_a_preview_that_cannot_be_deleted_does_not_stop_the_clean_up(
    uploader: Uploader, personas: Personas, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise StorageError("The disk is gone.")

    seal(uploader, a_csv=CSV)
    personas.client("developer").delete(MINE)
    monkeypatch.setattr("datasets.storage.local.LocalStorage.delete", fail)
    garbage_collection.purge(now())
    assert not Version.objects.exists()
