"""HTTP API of datasets, for members of the namespace and others."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from datasets import garbage_collection, messages, selectors
from datasets.indexing import indexing
from datasets.models import Dataset, File, Version
from portal.common.clock import now
from rbac.models import AuditEntry, Namespace
from runtime.data.format_selection import MESSAGES, Unread
from tests.answers import whole
from tests.datasets.conftest import Uploader, sha
from tests.factories import make_member, make_namespace, make_token
from tests.messages import mentions
from tests.personas import Personas

pytestmark = pytest.mark.django_db
MINE = "/api/v1/datasets/team/mine"
JSON = "application/json"
CONTENT = b"0123456789abcdefghij"


@pytest.fixture
def developer(personas: Personas) -> Client:
    return personas.client("developer")


@pytest.fixture
def sealed(uploader: Uploader) -> Version:
    """``team/mine``, version 1, with one file in a folder."""
    uploader.upload("folder/数据.bin", CONTENT)
    version = uploader.seal()
    indexing.index(version.pk)
    version.refresh_from_db()
    assert version.state == "sealed", version.why
    return version


def names(client: Client, query: str = "") -> list[str]:
    return [row["full_name"] for row in client.get(f"/api/v1/datasets{query}").json()["results"]]


def send(client: Client, file: dict[str, Any], number: int, piece: bytes, base: str = f"{MINE}/versions/1") -> Any:
    return client.put(
        f"{base}/files/{file['id']}/parts/{number}",
        data=piece,
        content_type="application/octet-stream",
        headers={"X-Content-SHA256": sha(piece)},
    )


# --- Complete workflow -----------------------------------------------------------------------------------------------
def test_from_nothing_to_a_sealed_version(developer: Client, small_parts: None) -> None:
    made = developer.post("/api/v1/namespaces/team/datasets", {"name": "mine", "description": "ours"}, JSON)
    assert (made.status_code, made.json()["full_name"], made.json()["latest"]) == (201, "team/mine", None)
    version = developer.post(f"{MINE}/versions", {"expected_bytes": 20}, JSON)
    assert (version.status_code, version.json()["number"], version.json()["state"]) == (201, 1, "open")

    files = f"{MINE}/versions/1/files"
    announced = developer.post(files, {"path": "a.bin", "size": 20, "sha256": sha(CONTENT)}, JSON)
    assert announced.status_code == 201
    file = announced.json()
    assert {name: file[name] for name in ("path", "size", "part_size", "parts", "complete")} == {
        "path": "a.bin",
        "size": 20,
        "part_size": 10,
        "parts": [],
        "complete": False,
    }
    assert send(developer, file, 1, CONTENT[10:]).json() == {"parts": [1]}
    assert developer.post(files, {"path": "a.bin", "size": 20}, JSON).status_code == 200
    missing = developer.post(f"{files}/{file['id']}/complete", {"sha256": sha(CONTENT)}, JSON)
    assert (missing.status_code, missing.json()["code"], missing.json()["missing"]) == (409, "incomplete", [0])
    assert send(developer, file, 0, CONTENT[:10]).json() == {"parts": [0, 1]}
    completed = developer.post(f"{files}/{file['id']}/complete", {"sha256": sha(CONTENT)}, JSON)
    assert (completed.status_code, completed.json()["complete"], completed.json()["checked"]) == (200, True, 20)

    assert developer.post(f"{MINE}/versions/1/seal").json()["state"] == "indexing"
    indexing.index(Version.objects.get().pk)
    answered = developer.get(MINE).json()
    assert (answered["latest"], answered["size"], answered["versions"][0]["state"]) == (1, 20, "sealed")
    assert developer.get(files).json()["results"] == [
        {
            "path": "a.bin",
            "size": 20,
            "sha256": sha(CONTENT),
            "format": "",
            "why": MESSAGES[Unread.UNKNOWN],
            "records": None,
        }
    ]


@pytest.mark.parametrize(
    ("sent", "digest", "status", "code"),
    [
        (b"x" * 10, sha(b"other"), 422, "checksum_mismatch"),
        (b"x" * 10, "", 422, "validation_failed"),
        (b"x" * 9, sha(b"x" * 9), 422, "wrong_length"),
        (b"x" * 11, sha(b"x" * 11), 413, "too_large"),
    ],
)
def test_a_part_that_is_wrong_is_refused_with_its_code(
    uploader: Uploader, developer: Client, sent: bytes, digest: str, status: int, code: str
) -> None:
    file = uploader.announce("a", CONTENT)
    answer = developer.put(
        f"{MINE}/versions/1/files/{file.pk}/parts/0",
        data=sent,
        content_type="application/octet-stream",
        headers={"X-Content-SHA256": digest},
    )
    assert (answer.status_code, answer.json()["code"]) == (status, code)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"name": "Not A Label"}, "name"),
        ({"name": "x" * 64}, "name"),
        ({}, "name"),
        ({"name": "ok", "format": "no-such-format"}, "format"),
        ({"name": "ok", "description": "x" * 2001}, "description"),
    ],
)
def test_an_invalid_dataset_is_refused_by_field(
    developer: Client, personas: Personas, body: dict[str, Any], field: str
) -> None:
    answer = developer.post("/api/v1/namespaces/team/datasets", body, JSON)
    assert answer.status_code == 422 and field in answer.json()["errors"]


def test_a_name_is_taken_once(developer: Client, dataset: Dataset) -> None:
    again = developer.post("/api/v1/namespaces/team/datasets", {"name": "mine"}, JSON)
    assert (again.status_code, again.json()["code"]) == (409, "exists")


# --- Visibility ------------------------------------------------------------------------------------------------------
def test_open_versions_are_visible_to_writers_alone(uploader: Uploader, personas: Personas) -> None:
    answered = {
        name: personas.client(name).get(f"{MINE}/versions/1").status_code
        for name in ("admin", "owner", "developer", "viewer", "stranger", "nobody")
    }
    assert answered == {"admin": 200, "owner": 200, "developer": 200, "viewer": 404, "stranger": 404, "nobody": 401}
    assert personas.client("viewer").get(MINE).json()["versions"] == []


def test_another_account_sees_it_while_it_is_shared(sealed: Version, personas: Personas, developer: Client) -> None:
    stranger = personas.client("stranger")
    content = f"{MINE}/versions/1/content/folder/数据.bin"
    assert [stranger.get(MINE).status_code, stranger.get(content).status_code] == [404, 404]
    shared = developer.put(f"{MINE}/shares", {"namespaces": ["elsewhere"]}, JSON)
    assert shared.json()["shared_with"] == ["elsewhere"]
    assert "team/mine" in names(stranger)
    assert whole(stranger.get(content)) == CONTENT
    assert stranger.get(MINE).json()["shared_with"] == []
    developer.put(f"{MINE}/shares", {"namespaces": []}, JSON)
    assert stranger.get(MINE).status_code == 404


def test_sharing_does_not_reveal_which_namespaces_exist(
    developer: Client, dataset: Dataset, personas: Personas
) -> None:
    answers = [developer.put(f"{MINE}/shares", {"namespaces": [name]}, JSON) for name in ("elsewhere", "nowhere")]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert [answer.json()["shared_with"] for answer in answers] == [["elsewhere"], ["nowhere"]]


def test_a_namespace_that_gets_a_shared_name_later_reads_nothing(
    sealed: Version, developer: Client, personas: Personas
) -> None:
    """The name was shared before the namespace existed; its later owner was not meant."""
    developer.put(f"{MINE}/shares", {"namespaces": ["nowhere"]}, JSON)
    namespace = make_namespace("nowhere")
    make_member(namespace, personas.stranger)
    stranger = personas.client("stranger")
    assert stranger.get(MINE).status_code == 404
    assert "team/mine" not in names(stranger)
    assert "team/mine" not in [offer.name for offer in selectors.catalogue(personas.stranger, "nowhere")]
    developer.put(f"{MINE}/shares", {"namespaces": ["nowhere", "elsewhere-too"]}, JSON)  # another change
    assert stranger.get(MINE).status_code == 404
    for wanted in ([], ["nowhere"]):  # removed and shared again, for the new namespace
        developer.put(f"{MINE}/shares", {"namespaces": wanted}, JSON)
    assert stranger.get(MINE).status_code == 200


def test_a_name_that_no_namespace_can_have_is_not_shared_with(developer: Client, dataset: Dataset) -> None:
    answer = developer.put(f"{MINE}/shares", {"namespaces": ["No Where"]}, JSON)
    assert answer.status_code == 422 and "No Where" in answer.json()["detail"]


def test_a_closed_namespace_shares_nothing(sealed: Version, personas: Personas, developer: Client) -> None:
    developer.put(f"{MINE}/shares", {"namespaces": ["elsewhere"]}, JSON)
    Namespace.objects.filter(name="elsewhere").update(closed=now())
    assert personas.client("stranger").get(MINE).status_code == 404


def test_a_public_dataset_is_readable_by_all_and_changed_by_its_namespace(
    sealed: Version, personas: Personas, developer: Client
) -> None:
    developer.patch(MINE, {"visibility": "public"}, JSON)
    stranger = personas.client("stranger")
    assert stranger.get(MINE).json()["visibility"] == "public"
    assert stranger.patch(MINE, {"description": "mine now"}, JSON).status_code == 403
    assert stranger.delete(MINE).status_code == 403
    assert personas.client("nobody").get(MINE).status_code == 401


def test_a_token_without_the_scope_does_not_write(dataset: Dataset, personas: Personas) -> None:
    secret = make_token(personas.developer, scopes=["namespace:read", "dataset:read"])
    reader = Client(headers={"authorization": f"Bearer {secret}"})
    assert reader.get(MINE).status_code == 200
    assert reader.post(f"{MINE}/versions", {}, JSON).status_code == 403


def test_the_list_is_searched_by_namespace_and_name(sealed: Version, developer: Client) -> None:
    assert names(developer) == ["public/diabetes", "public/digits", "team/mine"]
    assert names(developer, "?q=team/mi") == ["team/mine"]
    assert names(developer, "?q=digits") == ["public/digits"]


def test_the_list_has_pages(developer: Client, personas: Personas) -> None:
    for name in ("a", "b", "c"):
        developer.post("/api/v1/namespaces/team/datasets", {"name": name}, JSON)
    first = developer.get("/api/v1/namespaces/team/datasets?limit=2").json()
    rest = developer.get(f"/api/v1/namespaces/team/datasets?limit=2&cursor={first['next']}").json()
    assert [row["name"] for row in first["results"] + rest["results"]] == ["a", "b", "c"]
    assert rest["next"] is None


# --- Content ---------------------------------------------------------------------------------------------------------
def content(client: Client, **headers: str) -> Any:
    return client.get(f"{MINE}/versions/1/content/folder/数据.bin", headers=headers)


@pytest.mark.parametrize(
    ("asked", "status", "given", "answered"),
    [
        ("", 200, CONTENT, None),
        ("bytes=0-3", 206, b"0123", "bytes 0-3/20"),
        ("bytes=15-", 206, b"fghij", "bytes 15-19/20"),
        ("bytes=-5", 206, b"fghij", "bytes 15-19/20"),
        ("bytes=15-999", 206, b"fghij", "bytes 15-19/20"),
        ("bytes=5-3", 200, CONTENT, None),
        ("bytes=0-1,3-4", 200, CONTENT, None),
        ("pages=1", 200, CONTENT, None),
        ("bytes=-", 200, CONTENT, None),
    ],
)
def test_a_file_or_a_range_of_it(
    sealed: Version, developer: Client, asked: str, status: int, given: bytes, answered: str | None
) -> None:
    answer = content(developer, Range=asked)
    assert (answer.status_code, whole(answer)) == (status, given)
    assert answer.headers.get("Content-Range") == answered
    assert answer.headers["ETag"] == f'"{sha(CONTENT)}"'
    assert answer.headers["Content-Disposition"].startswith("attachment")


@pytest.mark.parametrize("asked", ["bytes=20-", "bytes=99-100", "bytes=-0"])
def test_a_range_beyond_the_end_is_refused(sealed: Version, developer: Client, asked: str) -> None:
    assert content(developer, Range=asked).status_code == 416


def test_a_client_that_has_the_content_gets_no_bytes(sealed: Version, developer: Client) -> None:
    assert content(developer, **{"If-None-Match": f'"{sha(CONTENT)}"'}).status_code == 304


def test_a_download_that_has_begun_outlives_the_deletion(
    sealed: Version, developer: Client, personas: Personas
) -> None:
    running = content(developer)
    developer.delete(MINE)
    garbage_collection.tidy(now() + timedelta(days=8))
    assert not File.objects.exists()
    assert whole(running) == CONTENT
    assert content(developer).status_code == 404


# --- Deleting --------------------------------------------------------------------------------------------------------
def test_a_deleted_dataset_can_be_restored(sealed: Version, developer: Client, personas: Personas) -> None:
    gone = developer.delete(MINE)
    assert gone.status_code == 202 and gone.json()["gone_after"] > gone.json()["deleted_at"]
    assert names(developer) == ["public/diabetes", "public/digits"]
    assert developer.post(f"{MINE}/versions", {}, JSON).status_code == 409
    again = developer.post("/api/v1/namespaces/team/datasets", {"name": "mine"}, JSON)
    assert mentions(again.json()["detail"], messages.DATASET_NAME_IN_GRACE)
    assert developer.post(f"{MINE}/restore").json()["deleted_at"] is None
    assert names(developer)[-1] == "team/mine"


def test_a_deleted_dataset_is_gone_for_namespaces_it_was_shared_with(
    sealed: Version, developer: Client, personas: Personas
) -> None:
    developer.put(f"{MINE}/shares", {"namespaces": ["elsewhere"]}, JSON)
    developer.delete(MINE)
    assert personas.client("stranger").get(MINE).status_code == 404


def test_every_change_is_in_the_audit_log(sealed: Version, developer: Client) -> None:
    developer.patch(MINE, {"visibility": "public"}, JSON)
    developer.put(f"{MINE}/shares", {"namespaces": []}, JSON)
    developer.delete(MINE)
    developer.post(f"{MINE}/restore")
    actions = list(AuditEntry.objects.filter(target="team/mine").order_by("pk").values_list("action", flat=True))
    assert actions == [
        "dataset.create",
        "dataset.version",
        "dataset.seal",
        "dataset.change",
        "dataset.share",
        "dataset.delete",
        "dataset.restore",
    ]


def test_a_member_of_a_closed_namespace_has_no_datasets(sealed: Version, developer: Client, personas: Personas) -> None:
    developer.patch(MINE, {"visibility": "public"}, JSON)
    sealed.dataset.namespace.closed = sealed.created
    sealed.dataset.namespace.save()
    for name in ("admin", "developer", "stranger"):
        assert personas.client(name).get(MINE).status_code == 404


def test_membership_in_the_namespace_that_it_is_shared_with_counts_with_its_role(
    sealed: Version, developer: Client, personas: Personas
) -> None:
    third = make_namespace("third")
    make_member(third, personas.stranger)
    developer.put(f"{MINE}/shares", {"namespaces": ["third"]}, JSON)
    assert personas.client("stranger").get(MINE).status_code == 200
    assert personas.client("stranger").post(f"{MINE}/versions", {}, JSON).status_code == 403
