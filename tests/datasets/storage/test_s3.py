"""Storage in a bucket of an S3 service that runs as a separate server."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import boto3
import httpx
import pytest
from moto.server import ThreadedMotoServer
from pytest_django import Settings

from datasets import garbage_collection, materialization, messages, services
from datasets.models import Version
from datasets.storage import default_storage
from datasets.storage.base import Stat, StorageError, StorageFull
from datasets.storage.s3 import Address, S3Storage, _client
from portal.common.clock import now
from runtime.data import catalogue
from tests.contracts.storage_contract import StorageContract
from tests.datasets.conftest import sha
from tests.datasets.filled import seal
from tests.messages import pattern
from tests.personas import Personas

MANY = 9 << 20  # more than is sent in one part


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        yield "http://{}:{}".format(*server.get_host_and_port())
    finally:
        server.stop()


@pytest.fixture
def address(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Address]:
    """Address of an empty bucket."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    _client.cache_clear()
    made = Address(f"bucket-{uuid4().hex}", "portal/one", endpoint, "us-east-1")
    boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1").create_bucket(Bucket=made.bucket)
    yield made
    _client.cache_clear()


@pytest.fixture
def storage(address: Address, tmp_path: Path) -> S3Storage:
    return S3Storage(address, tmp_path / "scratch")


class TestS3Storage(StorageContract):
    @pytest.fixture
    def storage(self, address: Address, tmp_path: Path) -> S3Storage:
        return S3Storage(address, tmp_path / "scratch")


def test_a_large_file_is_sent_in_parts_and_read_back_complete(storage: S3Storage) -> None:
    content = os.urandom(MANY)
    assert storage.put("large", io.BytesIO(content)) == Stat("large", MANY, sha(content)) == storage.stat("large")
    storage.place("large", storage.shelf() / "large")
    assert (storage.shelf() / "large").read_bytes() == content


def test_a_signed_address_is_read_by_anybody(storage: S3Storage) -> None:
    storage.put("a", io.BytesIO(b"content"))
    url = storage.signed_url("a", timedelta(minutes=1))
    assert url is not None and httpx.get(url).content == b"content"


def test_two_portals_in_one_bucket_are_isolated(storage: S3Storage, address: Address) -> None:
    other = S3Storage(Address(address.bucket, "portal/other", address.endpoint, address.region), storage.staging())
    storage.put("a", io.BytesIO(b"x"))
    assert list(other.list()) == []


def test_nothing_is_left_on_this_machine(storage: S3Storage) -> None:
    storage.put("a", io.BytesIO(b"x"))
    storage.place("a", storage.shelf() / "a")
    assert [path.name for path in storage.staging().iterdir()] == []
    assert [path.name for path in storage.shelf().iterdir()] == ["a"]


def test_a_missing_bucket_is_an_error(address: Address, tmp_path: Path) -> None:
    storage = S3Storage(Address("nowhere", "", address.endpoint, address.region), tmp_path)
    with pytest.raises(StorageError, match="NoSuchBucket"):
        storage.put("a", io.BytesIO(b"x"))


def test_an_unreachable_service_is_an_error(address: Address, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    storage = S3Storage(Address(address.bucket, "", "http://127.0.0.1:9", address.region), tmp_path)
    with pytest.raises(StorageError, match=pattern(messages.STORAGE_UNAVAILABLE)):
        storage.stat("a")


def test_a_full_disk_on_the_way_is_an_error(storage: S3Storage) -> None:
    class Full(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise OSError(28, "No space left on device")

    with pytest.raises(StorageFull, match=pattern(messages.DISK_FULL)):
        storage.put("a", Full())


# --- A whole dataset ------------------------------------------------------------------------------------------------
@pytest.fixture
def in_bucket(settings: Settings, address: Address, tmp_path: Path) -> None:
    settings.STORAGE_DIR = tmp_path / "scratch"
    settings.STORAGE_BUCKET = vars(address)


@pytest.mark.django_db
@pytest.mark.usefixtures("in_bucket", "small_parts")
def test_a_dataset_is_uploaded_sealed_and_laid_out_for_a_job(personas: Personas) -> None:
    version: Version = seal(personas.developer)
    assert materialization.prepare(version, patience=60)
    info = catalogue.find("team/mine", [materialization.root_of(version.pk)])
    rows = [row for chunk in catalogue.chunks(info) for row in catalogue.read_chunk(chunk)]
    assert rows == [{"x": "1", "y": "2"}, {"x": "3", "y": "4"}]


@pytest.mark.django_db
@pytest.mark.usefixtures("in_bucket", "small_parts")
def test_deleted_content_is_removed_from_the_bucket(personas: Personas, settings: Settings) -> None:
    seal(personas.developer)
    services.delete_dataset(actor=personas.developer, ns="team", name="mine")
    for days in (settings.KEEP_DELETED_DATASETS_DAYS + 1, settings.KEEP_DELETED_DATASETS_DAYS + 2):
        garbage_collection.tidy(now() + timedelta(days=days))
    assert [stat.key for stat in default_storage().list("blobs")] == []
