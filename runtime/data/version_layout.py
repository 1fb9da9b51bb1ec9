"""Layout of a version of a dataset that the portal prepares for a job.

A folder with ``version.json``, ``manifest.json`` (as ``datasets/manifest.py`` writes it) and ``files/`` with the files
by their paths. Its chunks were found when the version was sealed, so no file is read to list them. ``version.json`` is
``{"dataset": "team/mine", "version": 3, "format": "csv", "splits": {"train": 1000, "test": 200}}``, where the numbers
are records. Its name is ``team/mine@3``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runtime.data.dataset import BadDataset, Chunk, DatasetInfo
from runtime.data.format_selection import in_order
from runtime.data.span import Span
from runtime.data.splits import assign, split_of
from runtime.messages import data as messages
from runtime.patience import is_shortage, patiently

VERSION, MANIFEST, FILES = "version.json", "manifest.json", "files"
_WRONG = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)


def find(folder: Path) -> DatasetInfo | None:
    """Return the version in the folder, or None if there is none. Raises BadDataset."""
    path = folder / VERSION
    if not path.is_file():
        return None
    try:
        body = json.loads(patiently(path.read_bytes))
        splits = {str(split): int(records) for split, records in body["splits"].items()}
        name, number = str(body["dataset"]), int(body["version"])
        format_ = str(body["format"])
    except _WRONG as error:
        if is_shortage(error):
            raise
        raise _damaged(path, error) from error
    return DatasetInfo(
        name=versioned(name, number),
        directory=folder,
        splits=tuple(splits),
        listing=lambda split: _chunks(folder, split),
        records=splits,
        format=format_,
        version=number,
    )


def versioned(name: str, number: int) -> str:
    """Return the name of a version."""
    return f"{name}@{number}"


def describe(manifest: Mapping[str, Any], format_: str) -> Mapping[str, Any]:
    """Return the content of ``version.json`` for a version with that manifest."""
    splits = {split: sum(chunk.records for chunk in chunks) for split, chunks in _divided(manifest).items()}
    return {
        "dataset": manifest["dataset"],
        "version": manifest["version"],
        "format": format_,
        "splits": splits,
    }


def _chunks(folder: Path, split: str) -> tuple[Chunk, ...]:
    path = folder / MANIFEST
    try:
        selected = _divided(json.loads(patiently(path.read_bytes))).get(split, [])
        return tuple(chunk._replace(path=str(folder / FILES / chunk.path)) for chunk in selected)
    except _WRONG as error:
        if is_shortage(error):
            raise
        raise _damaged(path, error) from error


def _divided(manifest: Mapping[str, Any]) -> Mapping[str, list[Chunk]]:
    """Return the chunks of each split, by paths within the version. A file without records may still name a split."""
    units: list[tuple[str, Chunk | None]] = []
    files = {file["path"]: file for file in _read(manifest)}
    for file in (files[path] for path in in_order({path: file["format"] for path, file in files.items()})):
        spans = [_place(*chunk) for chunk in file["chunks"]]
        path_split = split_of(file["path"])
        units += [(span.split or path_split, Chunk.of(file["path"], span, file["format"])) for span in spans]
        units += [] if spans else [(path_split, None)]
    return {split: [chunk for chunk in chunks if chunk] for split, chunks in assign(units).items()}


def _read(manifest: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the files whose records are read."""
    return [file for file in manifest["files"] if file["format"]]


def _place(offset: int, length: int, records: int, digest: int | None, split: str = "") -> Span:
    if not all(type(value) is int for value in (offset, length, records, digest or 0)) or type(split) is not str:
        raise ValueError("a chunk is no numbers")
    return Span(offset, length, records, digest, split)


def _damaged(path: Path, error: Exception) -> BadDataset:
    return BadDataset(messages.DATASET_DESCRIPTION_INVALID(path=path, error=f"{error!r}"))
