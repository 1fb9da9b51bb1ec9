"""Layers added to an image in a real registry."""

from __future__ import annotations

import contextlib
import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from jobs.builds.images import layers
from jobs.builds.images import registry_client as registries
from jobs.builds.images.registry_client import (
    DOCKER_MANIFEST,
    OCI_INDEX,
    OCI_MANIFEST,
    Credentials,
    Manifest,
    Registry,
    RegistryError,
    digest_of,
)
from tests.servers.image_registry import ImageRegistry

pytestmark = pytest.mark.images


def some_files(folder: Path) -> Path:
    (folder / "code" / "parts").mkdir(parents=True)
    (folder / "code" / "train.py").write_text("print('hello')\n")
    (folder / "code" / "parts" / "a.py").write_text("x = 1\n")
    (folder / "code" / "run").write_text("#!/bin/sh\n")
    (folder / "code" / "run").chmod(0o700)
    (folder / "code" / "link").symlink_to("train.py")
    return folder / "code"


def push_base(registry: Registry, repository: str, media_type: str = OCI_MANIFEST) -> None:
    """Push an image without layers."""
    config = json.dumps({"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": []}}).encode()
    registry.put_blob(repository, digest_of(config), config)
    described = {"mediaType": "application/x", "digest": digest_of(config), "size": len(config)}
    body = {"schemaVersion": 2, "mediaType": media_type, "config": described, "layers": []}
    registry.put_manifest(repository, "1", Manifest(media_type, json.dumps(body).encode()))


def blob(registry: Registry, repository: str, digest: str) -> bytes:
    into = io.BytesIO()
    registry.read_blob(repository, digest, into)
    return into.getvalue()


def appended(server: ImageRegistry, source: Path, repository: str = "jobs/team", base: str = "base") -> dict[str, Any]:
    registry = Registry(server.host, insecure=True)
    layers.append(
        registry,
        f"{server.host}/{base}:1",
        registry,
        f"{server.host}/{repository}:j",
        {"/opt/job/code": source},
        by="test",
        settings={"User": "10001:10001"},
    )
    found = registry.manifest(repository, "j")
    assert found is not None
    return found.content


@pytest.mark.parametrize("media_type", [OCI_MANIFEST, DOCKER_MANIFEST])
def test_the_files_are_in_the_image_as_root_s_and_readable_by_all(
    image_registry: ImageRegistry, tmp_path: Path, media_type: str
) -> None:
    registry = Registry(image_registry.host, insecure=True)
    push_base(registry, "base", media_type)
    manifest = appended(image_registry, some_files(tmp_path))
    packed = blob(registry, "jobs/team", manifest["layers"][-1]["digest"])
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        seen = {entry.name: (entry.mode, entry.uid, entry.gid, entry.mtime) for entry in archive}
        content = archive.extractfile("opt/job/code/train.py")
        assert content is not None
        assert content.read() == b"print('hello')\n"
    folders = {"opt", "opt/job", "opt/job/code", "opt/job/code/parts"}
    assert {name for name in seen if seen[name][0] == 0o755} >= {*folders, "opt/job/code/run"}
    assert seen["opt/job/code/train.py"] == (0o644, 0, 0, 0)
    assert all(entry[1:] == (0, 0, 0) for entry in seen.values())
    config = json.loads(blob(registry, "jobs/team", manifest["config"]["digest"]))
    assert config["config"]["User"] == "10001:10001"
    assert len(config["rootfs"]["diff_ids"]) == 1


def test_the_same_files_give_the_same_image(image_registry: ImageRegistry, tmp_path: Path) -> None:
    push_base(Registry(image_registry.host, insecure=True), "base")
    first, second = tmp_path / "first", tmp_path / "second"
    one = appended(image_registry, some_files(first))
    os.utime(some_files(second) / "train.py", (1, 1))
    assert appended(image_registry, second / "code") == one


def test_blobs_of_other_repositories_are_mounted(image_registry: ImageRegistry, tmp_path: Path) -> None:
    registry = Registry(image_registry.host, insecure=True)
    push_base(registry, "base")
    appended(image_registry, some_files(tmp_path), "jobs/one")
    manifest = registry.manifest("jobs/one", "j")
    assert manifest is not None
    digest = manifest.content["layers"][0]["digest"]
    assert registry.mount_blob("jobs/other", digest, "jobs/one")
    assert registry.has_blob("jobs/other", digest)


def test_the_manifest_of_this_machine_is_chosen_from_an_index() -> None:
    index = {
        "manifests": [
            {"digest": "sha256:1", "platform": {"os": "windows", "architecture": "amd64"}},
            {"digest": "sha256:2", "platform": {"os": "linux", "architecture": "arm64"}},
            {"digest": "sha256:3", "platform": {"os": "linux", "architecture": "amd64"}},
        ]
    }
    assert layers.chosen(index, "x86_64") == "sha256:3"
    assert layers.chosen(index, "aarch64") == "sha256:2"


def test_an_image_for_other_machines_is_refused_with_a_message(image_registry: ImageRegistry, tmp_path: Path) -> None:
    registry = Registry(image_registry.host, insecure=True)
    push_base(registry, "base")
    found = registry.manifest("base", "1")
    assert found is not None
    entry = {"digest": digest_of(found.body), "size": len(found.body), "mediaType": OCI_MANIFEST}
    entry |= {"platform": {"os": "linux", "architecture": "s390x"}}
    body = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [entry]}
    registry.put_manifest("base", "1", Manifest(OCI_INDEX, json.dumps(body).encode()))
    with pytest.raises(RegistryError, match="it has no image for Linux on"):
        appended(image_registry, some_files(tmp_path))


def test_a_missing_image_is_refused_with_a_message(image_registry: ImageRegistry, tmp_path: Path) -> None:
    with pytest.raises(RegistryError, match="nobody:1: there is none"):
        appended(image_registry, some_files(tmp_path), base="nobody")


def test_the_password_of_the_credentials_file_is_sent_to_a_registry_that_requires_one(
    guarded_registry: ImageRegistry,
) -> None:
    credentials = Credentials.read(guarded_registry.credentials(), guarded_registry.host)
    registry = Registry(guarded_registry.host, insecure=True, credentials=credentials)
    push_base(registry, "base")
    assert registry.has_manifest("base", "1")
    assert not registry.has_manifest("base", "2")


def test_without_a_password_the_error_names_the_credentials(guarded_registry: ImageRegistry) -> None:
    with pytest.raises(RegistryError, match="its credentials do not allow it") as refused:
        Registry(guarded_registry.host, insecure=True).has_manifest("base", "1")
    assert refused.value.status == 401


def test_an_unreachable_registry_is_reported_with_a_message() -> None:
    with pytest.raises(RegistryError, match="cannot be reached"):
        Registry("127.0.0.1:9", insecure=True).has_manifest("base", "1")


def test_a_file_without_credentials_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="is no Docker configuration file"):
        Credentials.read(tmp_path / "config.json", "registry.example.org")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registries, "AWAY_SECONDS", 0.01)


@pytest.mark.usefixtures("impatient")
def test_a_push_waits_for_an_unavailable_registry(tmp_path: Path) -> None:
    server = ImageRegistry(tmp_path)
    server.start()
    try:
        push_base(Registry(server.host, insecure=True), "base")
        server.stop()
        messages: list[str] = []

        def comes_back(line: str) -> None:
            messages.append(line)
            server.start()

        source = some_files(tmp_path / "files")
        manifest = registries.wait_for_registry(lambda: appended(server, source), 60.0, comes_back)
        assert len(manifest["layers"]) == 1
        assert messages[0].startswith(f"The image registry {server.host} cannot be reached")
    finally:
        server.stop()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(("status", "attempts"), [(0, 3), (503, 3), (429, 3), (401, 1), (404, 1)])
def test_only_transient_errors_are_retried(status: int, attempts: int) -> None:
    calls: list[int] = []

    def operation() -> None:
        calls.append(1)
        if len(calls) < 3:
            raise RegistryError("registry.example", status, "give a manifest")

    with contextlib.nullcontext() if attempts == 3 else pytest.raises(RegistryError):
        registries.wait_for_registry(operation, 60.0, lambda line: None)
    assert len(calls) == attempts


def test_an_unavailable_registry_is_an_error_after_the_deadline() -> None:
    def operation() -> None:
        raise RegistryError("registry.example", 503, "give a manifest")

    with pytest.raises(RegistryError, match="503"):
        registries.wait_for_registry(operation, 0.0, lambda line: None)
