"""``manage.py check_contents``: the storage and the database are compared after one of them was restored."""

from __future__ import annotations

import io
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from datasets.models import Blob
from datasets.storage import default_storage
from jobs.builds import code_snapshots
from portal.common.clock import now
from tests.factories import make_job, make_namespace

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _own_storage(settings: Settings, tmp_path: Path) -> None:
    settings.STORAGE_DIR = tmp_path


def put(key: str) -> None:
    default_storage().put(key, io.BytesIO(b"content"))


def check(*arguments: str) -> str:
    out = StringIO()
    call_command("check_contents", *arguments, stdout=out)
    return out.getvalue()


@pytest.fixture
def code() -> str:
    """The key of a job's code, which is stored."""
    key = code_snapshots.key_of(make_job().snapshot_id)
    put(key)
    return key


def make_blob(key: str, **fields: object) -> None:
    Blob.objects.create(namespace=make_namespace(), sha256="0" * 64, size=7, key=key, created=now(), **fields)


def test_a_storage_that_fits_has_nothing_missing_and_nothing_unknown(code: str) -> None:
    assert check() == "Missing: 0. Unknown: 0.\n"


def test_missing_contents_are_listed_and_an_error(code: str) -> None:
    default_storage().delete(code)
    out = StringIO()
    with pytest.raises(CommandError, match="from the copy"):
        call_command("check_contents", stdout=out)
    assert out.getvalue().splitlines() == [f"missing {code}", "Missing: 1. Unknown: 0."]


def test_unknown_contents_are_listed_and_kept(code: str) -> None:
    put("blobs/9/aa/of-later")
    assert check().splitlines() == ["unknown blobs/9/aa/of-later", "Missing: 0. Unknown: 1."]
    assert default_storage().stat("blobs/9/aa/of-later").size == 7


def test_unknown_contents_are_deleted_on_request_and_known_ones_stay(code: str) -> None:
    put("blobs/9/aa/of-later")
    assert "Unknown, deleted: 1" in check("--delete-unknown")
    assert [stat.key for stat in default_storage().list()] == [code]


@pytest.mark.parametrize("fields", [{"kept": None}, {"kept": now(), "doomed": now()}])
@pytest.mark.parametrize("stored", [True, False])
def test_contents_that_arrive_or_go_are_neither(code: str, fields: dict[str, object], stored: bool) -> None:
    make_blob("blobs/1/aa/passing", **fields)
    if stored:
        put("blobs/1/aa/passing")
    assert check() == "Missing: 0. Unknown: 0.\n"
