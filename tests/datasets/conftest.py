"""Fixtures: an empty storage, parts of a few bytes, and a developer's dataset to fill."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from pathlib import Path

import pytest
from pytest_django import Settings

from datasets import checksums, manifest, services
from datasets.checksums import Checksum
from datasets.models import Dataset, File, Version
from datasets.storage import default_storage
from datasets.uploads import announcement, completion, parts
from datasets.uploads.upload_states import Place
from quota.models import Limit
from rbac.models import User
from tests.personas import Personas

PART = 10  # bytes
CONTENT = bytes(range(34))  # four parts of ten bytes, the last of four


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def by_sha(digest: str) -> Checksum:
    return Checksum(checksums.SHA256, digest)


def stored(file: File) -> bytes:
    file.refresh_from_db()
    assert file.blob is not None
    with default_storage().open(file.blob.key) as stream:
        return stream.read()


def gathered() -> list[str]:
    return [path.name for path in default_storage().staging().iterdir()]


def limit(dataset: Dataset, amount: int) -> None:
    Limit.objects.update_or_create(namespace=dataset.namespace, resource="storage", defaults={"amount": amount})


@pytest.fixture(autouse=True)
def _own_storage(settings: Settings, tmp_path: Path) -> None:
    settings.STORAGE_DIR = tmp_path / "storage"


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "part_size_for", lambda size: PART)


@dataclass
class Uploader:
    """Client that fills versions of ``team/mine``."""

    actor: User
    ns: str = "team"
    name: str = "mine"
    number: int = 1

    @property
    def place(self) -> Place:
        return Place(self.ns, self.name, self.number)

    def begin(self, expected_bytes: int = 0) -> Version:
        version = services.begin_version(actor=self.actor, ns=self.ns, name=self.name, expected_bytes=expected_bytes)
        self.number = version.number
        return version

    def announce(self, path: str, content: bytes, digest: str = "") -> File:
        return announcement.announce(
            actor=self.actor, place=self.place, path=path, size=len(content), sha256=digest
        ).file

    def part(self, file: File, number: int, piece: bytes, digest: str = "") -> list[int]:
        return parts.receive_part(
            actor=self.actor,
            place=self.place,
            file_id=file.pk,
            number=number,
            checksum=by_sha(digest or sha(piece)),
            length=len(piece),
            body=io.BytesIO(piece),
        )

    def parts(self, file: File, content: bytes) -> None:
        for number, begin in enumerate(range(0, len(content), file.part_size)):
            self.part(file, number, content[begin : begin + file.part_size])

    def complete(self, file: File, content: bytes) -> File:
        return completion.complete(actor=self.actor, place=self.place, file_id=file.pk, sha256=sha(content)).file

    def upload(self, path: str, content: bytes) -> File:
        file = self.announce(path, content)
        self.parts(file, content)
        return self.complete(file, content)

    def seal(self) -> Version:
        return services.seal_version(actor=self.actor, ns=self.ns, name=self.name, number=self.number)


@pytest.fixture
def dataset(personas: Personas) -> Dataset:
    return services.create_dataset(actor=personas.developer, namespace_name="team", name="mine")


@pytest.fixture
def uploader(personas: Personas, dataset: Dataset, small_parts: None) -> Uploader:
    """The developer, with an open version."""
    uploader = Uploader(personas.developer)
    uploader.begin()
    return uploader
