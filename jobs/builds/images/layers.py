"""Layers: add files to an image without running anything.

Creates a layer, the image's configuration with it, and the manifest of both. The same files give the same bytes.
Standard library only.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import platform
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from jobs.builds.images.plan import parts
from jobs.builds.images.registry_client import (
    DOCKER_MANIFEST,
    INDEXES,
    OCI_MANIFEST,
    Manifest,
    Registry,
    RegistryError,
    digest_of,
)

_LAYER_TYPE = {
    OCI_MANIFEST: "application/vnd.oci.image.layer.v1.tar+gzip",
    DOCKER_MANIFEST: "application/vnd.docker.image.rootfs.diff.tar.gzip",
}
_CONFIG_TYPE = {
    OCI_MANIFEST: "application/vnd.oci.image.config.v1+json",
    DOCKER_MANIFEST: "application/vnd.docker.container.image.v1+json",
}
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
_CHUNK = 1024**2


@dataclass(frozen=True)
class Layer:
    """A packed layer. ``diff``: digest of the unpacked archive; ``size``: packed bytes."""

    digest: str
    diff: str
    size: int


# --- Packing ---------------------------------------------------------------------------------------------------------
def pack(sources: Mapping[str, Path], into: Path) -> Layer:
    """Pack folders and files, by their path in the image, into a file.

    All entries belong to root, are readable by all, and have the modification time 0.
    """
    diff = hashlib.sha256()
    with into.open("wb") as raw, gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=6, mtime=0) as packed:
        through = cast(IO[bytes], _Tee(cast(IO[bytes], packed), diff))
        with tarfile.open(fileobj=through, mode="w|", format=tarfile.PAX_FORMAT) as archive:
            for parent in sorted({parent for place in sources for parent in _parents(place)}):
                archive.addfile(_folder(parent))
            for place, source in sorted(sources.items()):
                _add(archive, place.strip("/"), source)
    packed_digest = hashlib.sha256()
    with into.open("rb") as file:
        while chunk := file.read(_CHUNK):
            packed_digest.update(chunk)
    return Layer(f"sha256:{packed_digest.hexdigest()}", f"sha256:{diff.hexdigest()}", into.stat().st_size)


def _parents(place: str) -> Iterable[str]:
    return (str(parent) for parent in PurePosixPath(place.strip("/")).parents if str(parent) != ".")


def _folder(name: str) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, 0o755
    return entry


def _add(archive: tarfile.TarFile, name: str, source: Path) -> None:
    entry = archive.gettarinfo(str(source), name)
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = 0
    entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
    if entry.islnk():  # a hard link: stored as a second file, so that the order does not matter
        entry.type, entry.size = tarfile.REGTYPE, source.stat().st_size
    if entry.isreg():
        with source.open("rb") as file:
            archive.addfile(entry, file)
        return
    archive.addfile(entry)
    if entry.isdir():
        for child in sorted(source.iterdir()):
            _add(archive, f"{name}/{child.name}", child)


class _Tee:
    """File that writes to another file and updates a hash with the same bytes."""

    def __init__(self, out: IO[bytes], digest: Any) -> None:
        self._out, self._digest = out, digest

    def write(self, content: bytes) -> int:
        self._digest.update(content)
        return self._out.write(content)


# --- Manifests: pure -------------------------------------------------------------------------------------------------
def chosen(index: Mapping[str, Any], machine: str) -> str:
    """Return the digest of an index's manifest for Linux on ``machine``. Raises LookupError."""
    for entry in index.get("manifests", ()):
        where = entry.get("platform", {})
        if where.get("os") == "linux" and where.get("architecture") == _MACHINES.get(machine, machine):
            return str(entry["digest"])
    raise LookupError(f"it has no image for Linux on {machine}")


def with_layer(
    manifest: Manifest, config: Mapping[str, Any], layer: Layer, *, by: str, settings: Mapping[str, Any]
) -> tuple[Manifest, bytes]:
    """Return the manifest and the configuration of an image with one more layer.

    ``settings``: fields of the configuration to change (``User``, ``WorkingDir``). ``by``: the ``created_by`` of the
    history.
    """
    kind = manifest.media_type if manifest.media_type in _LAYER_TYPE else OCI_MANIFEST
    changed = {
        **config,
        "config": {**config.get("config", {}), **settings},
        "rootfs": {"type": "layers", "diff_ids": [*config["rootfs"]["diff_ids"], layer.diff]},
        "history": [*config.get("history", ()), {"created": "1970-01-01T00:00:00Z", "created_by": by}],
    }
    body = json.dumps(changed, sort_keys=True).encode()
    entry = {"mediaType": _LAYER_TYPE[kind], "digest": layer.digest, "size": layer.size}
    described = {"mediaType": _CONFIG_TYPE[kind], "digest": digest_of(body), "size": len(body)}
    content = {**manifest.content, "mediaType": kind, "config": described}
    content["layers"] = [*manifest.content["layers"], entry]
    return Manifest(kind, json.dumps(content, sort_keys=True).encode()), body


# --- At a registry ---------------------------------------------------------------------------------------------------
def append(
    source: Registry,
    parent: str,
    target: Registry,
    reference: str,
    sources: Mapping[str, Path],
    *,
    by: str,
    settings: Mapping[str, Any],
) -> None:
    """Create ``reference`` at ``target`` from ``parent`` at ``source`` and the files of ``sources``.

    Raises RegistryError.
    """
    _, from_, version = parts(parent)
    _, into, tag = parts(reference)
    manifest = _manifest(source, from_, version)
    config = _config(source, from_, manifest.content)
    for blob in (manifest.content["layers"], [manifest.content["config"]]):
        for entry in blob:
            _carry(source, from_, target, into, entry["digest"])
    with tempfile.TemporaryDirectory() as directory:
        packed = Path(directory) / "layer"
        layer = pack(sources, packed)
        target.put_blob(into, layer.digest, packed)
    after, body = with_layer(manifest, config, layer, by=by, settings=settings)
    target.put_blob(into, digest_of(body), body)
    target.put_manifest(into, tag, after)


def _manifest(registry: Registry, repository: str, version: str) -> Manifest:
    found = registry.manifest(repository, version)
    if found is not None and found.media_type in INDEXES:
        try:
            found = registry.manifest(repository, chosen(found.content, platform.machine()))
        except LookupError as missing:
            raise RegistryError(registry.host, 404, f"give {repository}:{version}: {missing}") from None
    if found is None:
        raise RegistryError(registry.host, 404, f"give the image {repository}:{version}: there is none")
    return found


def _config(registry: Registry, repository: str, manifest: Mapping[str, Any]) -> dict[str, Any]:
    with tempfile.SpooledTemporaryFile() as file:
        registry.read_blob(repository, manifest["config"]["digest"], cast(Any, file))
        file.seek(0)
        return dict(json.loads(file.read()))


def _carry(source: Registry, from_: str, target: Registry, into: str, digest: str) -> None:
    """Copy a blob from one repository to another unless it is there; mount it if both are on one host."""
    if target.has_blob(into, digest):
        return
    if source.host == target.host and target.mount_blob(into, digest, from_):
        return
    with tempfile.NamedTemporaryFile() as file:
        source.read_blob(from_, digest, cast(Any, file))
        file.flush()
        target.put_blob(into, digest, Path(file.name))
