"""Pages about datasets: what they show to which user, and what their forms do."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from datasets import messages as datasets_messages
from datasets import services
from datasets.indexing import indexing
from datasets.models import Dataset, Version
from rbac import messages as rbac_messages
from runtime.messages import data as data_messages
from tests.datasets.conftest import Uploader
from tests.datasets.indexing.test_record_table import PNG
from tests.factories import LONG_AGO, make_job, make_namespace
from tests.messages import mentions
from tests.personas import Personas

pytestmark = pytest.mark.django_db
MINE = "/datasets/team/mine"


@pytest.fixture
def sealed(uploader: Uploader) -> Version:
    uploader.upload("train.csv", b"height,name\n1.5,<ada>\n2,grace\n")
    indexing.index(uploader.seal().pk)
    return Version.objects.get()


def text(client: Client, path: str = MINE, status: int = 200) -> str:
    answer = client.get(path)
    assert answer.status_code == status
    return answer.content.decode()


# --- Content of pages ------------------------------------------------------------------------------------------------
def test_the_page_shows_the_first_records_the_files_and_how_much_it_is(sealed: Version, personas: Personas) -> None:
    page = text(personas.client("viewer"))
    for shown in ("team/mine", "height", "number", "&lt;ada&gt;", "train.csv", "dataset: team/mine@1"):
        assert shown in page
    assert "<ada>" not in page


def test_pictures_are_shown_as_pictures(uploader: Uploader, personas: Personas) -> None:
    uploader.upload("a.png", PNG)
    indexing.index(uploader.seal().pk)
    assert 'src="data:image/png;base64,' in text(personas.client("viewer"))
    assert text(personas.client("stranger"), "/datasets/public/digits").count("data:image/png") == 20


def test_a_version_of_the_past_is_shown_by_its_number(sealed: Version, personas: Personas) -> None:
    again = Uploader(personas.developer)
    again.begin()
    again.upload("other.csv", b"weight\n3\n")
    indexing.index(again.seal().pk)
    viewer = personas.client("viewer")
    assert "weight" in text(viewer) and "height" not in text(viewer)
    assert "height" in text(viewer, f"{MINE}?version=1")
    for wrong in ("3", "x", "9" * 30):
        assert mentions(text(viewer, f"{MINE}?version={wrong}", 404), datasets_messages.VERSION_NOT_VISIBLE)


def test_the_reason_why_a_version_could_not_be_sealed_is_shown(uploader: Uploader, personas: Personas) -> None:
    uploader.upload("a.csv", b'a\n"open\n')
    indexing.index(uploader.seal().pk)
    page = text(personas.client("developer"))
    assert "indexing failed" in page and mentions(page, data_messages.CSV_QUOTE_UNCLOSED)
    assert "No sealed version yet" in text(personas.client("viewer"))


def test_the_jobs_that_use_it_are_named_to_those_who_may_see_them(sealed: Version, personas: Personas) -> None:
    Dataset.objects.update(visibility="public")
    elsewhere = make_namespace("far-away")
    spec = {"dataset": "team/mine@1"}
    make_job(personas.namespace, personas.developer, name="ours", spec=spec, created=LONG_AGO + timedelta(1))
    make_job(personas.namespace, personas.developer, name="older", spec={"dataset": "team/mine"})
    make_job(elsewhere, personas.stranger, name="theirs", spec=spec)
    make_job(personas.namespace, personas.developer, name="of-another", spec={"dataset": "team/mine-too@1"})
    page = text(personas.client("viewer"))
    assert page.index("ours") < page.index("older") and "theirs" not in page and "of-another" not in page
    assert "No visible job has used it." in text(personas.client("stranger"))


def test_the_api_names_the_jobs_that_use_it_to_those_who_may_see_them(sealed: Version, personas: Personas) -> None:
    Dataset.objects.update(visibility="public")
    spec = {"dataset": "team/mine@1"}
    job = make_job(personas.namespace, personas.developer, name="ours", spec=spec, created=LONG_AGO)
    make_job(make_namespace("far-away"), personas.stranger, name="theirs", spec=spec)
    uses = personas.client("viewer").get("/api/v1/datasets/team/mine/uses").json()["uses"]
    assert [(use["name"], use["version"], use["owner"]) for use in uses] == [("ours", "1", "developer")]
    assert uses[0]["page"].endswith(str(job.pk))
    assert personas.client("stranger").get("/api/v1/datasets/team/mine/uses").json() == {"uses": []}


def test_the_jobs_on_a_shipped_dataset_are_named_too(personas: Personas) -> None:
    make_job(personas.namespace, personas.developer, name="ours", spec={"dataset": "public/digits"})
    uses = personas.client("viewer").get("/api/v1/datasets/public/digits/uses").json()["uses"]
    assert [use["name"] for use in uses] == ["ours"]
    assert personas.client("viewer").get("/api/v1/datasets/public/nothing/uses").status_code == 404


def test_the_types_of_columns_are_in_the_readers_language(uploader: Uploader, personas: Personas) -> None:
    uploader.upload("a.csv", b"height,name\n1.5,ada\n2,x\nhigh,y\n")
    indexing.index(uploader.seal().pk)
    assert "number or text" in " ".join(text(personas.client("viewer")).split())
    chinese = personas.client("viewer").get(MINE, headers={"Accept-Language": "zh-hans"}).content.decode()
    assert "数字 或 文本" in " ".join(chinese.split())


def test_forms_are_shown_to_members_with_write_permission_alone(sealed: Version, personas: Personas) -> None:
    offered = {name: f"{MINE}/delete" in text(personas.client(name)) for name in ("developer", "viewer")}
    assert offered == {"developer": True, "viewer": False}
    assert f"{MINE}/upload" in text(personas.client("developer"))


# --- The list --------------------------------------------------------------------------------------------------------
def test_the_list_has_the_namespaces_own_the_shared_ones_and_those_that_are_shipped(
    sealed: Version, personas: Personas
) -> None:
    assert 'href="/datasets/team/mine"' in text(personas.client("viewer"), "/n/team/datasets")
    stranger = personas.client("stranger")
    page = text(stranger, "/n/elsewhere/datasets")
    assert "public/digits" in page and "team/mine" not in page
    services.share_dataset(actor=personas.developer, ns="team", name="mine", namespaces=["elsewhere"])
    assert "team/mine" in text(stranger, "/n/elsewhere/datasets")
    assert "team/mine" not in text(stranger, "/n/elsewhere/datasets?q=digits")


def test_a_long_list_has_pages(personas: Personas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.views._ROWS", 2)
    for name in ("a-one", "b-two", "c-three"):
        services.create_dataset(actor=personas.developer, namespace_name="team", name=name)
    viewer = personas.client("viewer")
    first = text(viewer, "/n/team/datasets")
    assert "a-one" in first and "c-three" not in first
    further = first.split('href="?own=')[1].split('"')[0]
    assert "c-three" in text(viewer, f"/n/team/datasets?own={further}")


# --- Forms -----------------------------------------------------------------------------------------------------------
def post(client: Client, path: str, **fields: Any) -> Any:
    return client.post(path, fields)


def test_a_new_one_leads_to_its_upload(personas: Personas) -> None:
    developer = personas.client("developer")
    made = post(developer, "/n/team/datasets/new", name="fresh", description="ours", format="")
    assert made.headers["Location"] == "/datasets/team/fresh/upload"
    assert '<data-upload data-dataset="team/fresh"' in text(developer, made.headers["Location"])


@pytest.mark.parametrize(("name", "status"), [("Not A Label", 422), ("mine", 409)])
def test_an_invalid_form_is_refused_and_keeps_its_input(
    dataset: Dataset, personas: Personas, name: str, status: int
) -> None:
    answer = post(personas.client("developer"), "/n/team/datasets/new", name=name, description="kept words")
    page = answer.content.decode()
    assert answer.status_code == status and "kept words" in page and 'role="alert"' in page


def test_the_readers_are_changed_by_a_form(sealed: Version, personas: Personas) -> None:
    developer = personas.client("developer")
    post(developer, f"{MINE}/readers", visibility="private", namespaces=" elsewhere , ")
    assert personas.client("stranger").get(MINE).status_code == 200
    post(developer, f"{MINE}/readers", visibility="public", namespaces="")
    row = Dataset.objects.get()
    assert (row.visibility, row.shares.count()) == ("public", 0)
    shown = developer.post(f"{MINE}/readers", {"visibility": "private", "namespaces": "No Where"}, follow=True)
    assert mentions(shown.content.decode(), rbac_messages.NOT_A_LABEL)


def test_a_deleted_dataset_is_marked_and_can_be_restored(sealed: Version, personas: Personas) -> None:
    developer = personas.client("developer")
    post(developer, f"{MINE}/delete")
    assert "This dataset is deleted" in text(developer)
    assert "Removed permanently" in text(developer, "/n/team/datasets")
    assert developer.get(f"{MINE}/upload").headers["Location"] == MINE
    post(developer, f"{MINE}/restore")
    assert "This dataset is deleted" not in text(developer)


def test_a_version_is_deleted_alone(sealed: Version, personas: Personas) -> None:
    developer = personas.client("developer")
    post(developer, f"{MINE}/versions/1/delete")
    assert "Nothing has been uploaded yet." in text(developer)


def test_an_upload_goes_on_with_the_version_that_is_open(uploader: Uploader, personas: Personas) -> None:
    developer = personas.client("developer")
    assert 'data-version="1"' in text(developer, f"{MINE}/upload")
    uploader.upload("a.txt", b"x\n")
    indexing.index(uploader.seal().pk)
    assert "data-version" not in text(developer, f"{MINE}/upload")
    assert developer.get(f"{MINE}/upload?version=1").headers["Location"] == MINE


def test_a_file_that_prevents_sealing_can_be_removed(uploader: Uploader, personas: Personas) -> None:
    uploader.upload("good.txt", b"x\n")
    half = uploader.announce("half.txt", b"0123456789abc")
    developer = personas.client("developer")
    page = text(developer, f"{MINE}/upload")
    assert page.index("half.txt") < page.index("good.txt") and "incomplete" in page
    answer = post(developer, f"{MINE}/versions/1/files/{half.pk}/take-out")
    assert answer.headers["Location"] == f"{MINE}/upload?version=1"
    assert "half.txt" not in text(developer, answer.headers["Location"])
    assert uploader.seal().state == "indexing"
