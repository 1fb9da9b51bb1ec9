"""Preview of a version: the first records of one of its files, created when it is sealed.

It is stored beside the manifest; previews of shipped datasets are created on request. The JSON document has ``format``
of the version, ``file`` (empty if several or none were read), the fields of ``RecordTable``, and ``statistics`` of the
whole version: records, size (bytes), files, chunks.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from io import BytesIO
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from datasets import messages
from datasets.indexing import image_previews, record_table
from datasets.indexing.chunk_index import SCRATCH
from datasets.indexing.record_table import RecordTable
from datasets.manifest import Entry, Manifest
from datasets.models import File, Version
from datasets.storage import default_storage
from datasets.storage.base import KeyNotFound, StorageError
from portal.common.errors import NotFound, RegattaError
from runtime.data import catalogue
from runtime.data.dataset import PICTURES, DatasetInfo
from runtime.data.format_selection import FILES
from runtime.data.formats import idx, images
from runtime.errors import RegattaError as RuntimeFault
from runtime.messages import from_json, to_json

_log = logging.getLogger(__name__)

Document = dict[str, Any]
_ROOT = Path(__file__).resolve().parent.parent.parent
# Number of files searched for pictures if no records are read.
_LOOSE = 100


# --- Stored previews -------------------------------------------------------------------------------------------------
def make(version: Version, manifest: Manifest) -> None:
    """Create and store the preview of a version that is being sealed. Never raises: a version needs no preview."""
    try:
        document = {**_first_records(version, manifest), "statistics": _statistics(manifest)}
        default_storage().put(
            _key(version), BytesIO(json.dumps({**document, "why": to_json(document["why"])}).encode())
        )
    except (RegattaError, OSError):
        _log.warning("There is no preview of version %s.", version.pk, exc_info=True)


def of(version: Version) -> Document:
    """Return the preview of a version. Raises NotFound if there is none yet, StorageError."""
    try:
        with default_storage().open(_key(version)) as stream:
            document = _read(json.load(stream))
    except KeyNotFound:
        raise NotFound(messages.PREVIEW_NOT_FOUND(number=version.number)) from None
    return document


def _read(document: Document) -> Document:
    return {**document, "why": from_json(document["why"])}


def forget(versions: Iterator[Version]) -> None:
    """Delete the previews of versions that are being removed. Failures are logged and do not stop the removal."""
    for version in versions:
        try:
            default_storage().delete(_key(version))
        except StorageError:
            _log.warning("The preview of version %s could not be deleted.", version.pk, exc_info=True)


def _key(version: Version) -> str:
    return f"previews/{version.dataset_id}/{version.number}.json"


def _statistics(manifest: Manifest) -> Mapping[str, int | None]:
    return {
        "records": manifest.records,
        "size": manifest.size,
        "files": len(manifest.files),
        "chunks": sum(len(entry.chunks) for entry in manifest.files),
    }


# --- Reading files ---------------------------------------------------------------------------------------------------
def _first_records(version: Version, manifest: Manifest) -> Document:
    entry = next((entry for entry in manifest.files if entry.records), None)
    if entry is None or entry.format == PICTURES:
        return {"format": entry.format if entry else FILES, "file": "", **asdict(_pictures(version))}
    with tempfile.TemporaryDirectory(prefix=SCRATCH, dir=default_storage().shelf()) as scratch:
        path = Path(scratch) / PurePosixPath(entry.path).name
        _write_file(version, entry.path, path)
        _write_labels(version, entry, path)
        most = _write_named(version, entry, path) if entry.format == "list" else record_table.RECORDS
        return {"format": entry.format, "file": entry.path, **_read_records(path, entry, most)}


def _read_records(path: Path, entry: Entry, most: int) -> Document:
    if not record_table.is_compressed(path, entry.format):
        return asdict(record_table.first_records(path, entry.format, entry.path, most))
    return in_child_process(path, entry.format, entry.path)


def in_child_process(path: Path, format_name: str, name: str, memory: int = record_table.MEMORY_BYTES) -> Document:
    """Read the first records in a child process, which is ended if it exceeds its limits."""
    command = [sys.executable, "-m", "datasets.indexing.record_table", format_name, str(path), name, str(memory)]
    try:
        done = subprocess.run(
            command, cwd=_ROOT, env=_ENVIRONMENT, capture_output=True, timeout=3 * record_table.SECONDS, check=True
        )
        document = _read(json.loads(done.stdout))
    except (subprocess.SubprocessError, ValueError) as fault:
        _log.info("Nothing could be seen of %s: %s", name, fault)
        most = messages.MEMORY_OR_TIME(memory=memory // 1024**2, seconds=record_table.SECONDS)
        return asdict(RecordTable(why=messages.PREVIEW_LIMIT_EXCEEDED(most=most)))
    return document


# One thread each: every thread takes memory that the limit counts, used or not.
_ENVIRONMENT = {"LANG": "C.UTF-8", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def _write_file(version: Version, name: str, path: Path) -> File:
    file = version.files.select_related("blob").get(path=name)
    assert file.blob is not None  # noqa: S101  only whole files are sealed
    path.parent.mkdir(parents=True, exist_ok=True)
    default_storage().place(file.blob.key, path)
    return file


def _write_labels(version: Version, entry: Entry, path: Path) -> None:
    """Lay out the labels of images beside them, if the version has any."""
    paths = set(version.files.values_list("path", flat=True)) if entry.format == "idx" else set()
    of_it = idx.labels_of(entry.path, paths)
    if of_it:
        _write_file(version, of_it, path.parent / PurePosixPath(of_it).name)


def _write_named(version: Version, entry: Entry, path: Path) -> int:
    """Lay out the first files that a list names, unless one is larger than a picture. Return their number."""
    count = 0
    for name in _first_named(path):
        file = version.files.filter(path=str(PurePosixPath(entry.path).parent / name)).first()
        if file is None or file.size > image_previews.MOST_BYTES:
            break
        target = path.parent / name
        if not target.exists():
            _write_file(version, file.path, target)
        count += 1
    return count


def _first_named(path: Path) -> list[str]:
    try:
        named = (name for span in record_table.first_chunks(path, "list") for name in images.names(path, span))
        return list(islice(named, record_table.RECORDS))
    except RuntimeFault:
        return []


def _pictures(version: Version) -> RecordTable:
    """Return the pictures among the first files if no records are read."""
    small = version.files.select_related("blob").filter(size__lte=image_previews.MOST_BYTES).order_by("path")[:_LOOSE]
    found = (
        (file.path, content) for file in small if (content := _content_of(file)) and image_previews.of_file(content)
    )
    return record_table.of_files(islice(found, record_table.PICTURES))


def _content_of(file: File) -> bytes:
    assert file.blob is not None  # noqa: S101  only whole files are sealed
    with default_storage().open(file.blob.key) as stream:
        return stream.read()


# --- Shipped datasets ------------------------------------------------------------------------------------------------
def of_shipped(info: DatasetInfo) -> Document:
    """Return the preview of a shipped dataset: that of the first file of its first split."""
    chunks = {split: catalogue.chunks(info, split) for split in info.splits}
    first = next(iter(chunks.values()))[0]
    path = Path(first.path)
    files = {Path(chunk.path) for part in chunks.values() for chunk in part}
    statistics = {
        "records": sum(info.records.values()),
        "size": sum(file.stat().st_size for file in files),
        "files": len(files),
        "chunks": sum(map(len, chunks.values())),
    }
    seen = record_table.first_records(path, first.format, path.name)
    return {"format": first.format, "file": path.name, **asdict(seen), "statistics": statistics}
