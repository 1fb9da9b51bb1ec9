"""Catalogue of datasets by name, and access to their records.

The name of a dataset is a folder's path below one of the directories of the search path ("public/digits"). The folder
holds a version that the portal has laid out (``version_layout``), or files with a ``dataset.json`` that describes them.
The datasets that are shipped with the project come last on every search path.

A script that trains on this machine may also name files (``local_files``), or a folder below the search path without a
description, as ``regatta data download`` leaves it.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn, Protocol

import numpy as np
import numpy.typing as npt

from runtime.data import local_files, record_codec, version_layout
from runtime.data.dataset import FEATURES, BadDataset, Chunk, DatasetInfo, UnknownDataset
from runtime.data.errors import FormatError, RecordError
from runtime.data.formats import registry
from runtime.data.record_codec import Features
from runtime.data.span import CHUNK_BYTES
from runtime.errors import Lost, UsageError
from runtime.messages import data as messages
from runtime.patience import is_shortage, patiently

SHIPPED = Path(__file__).resolve().parents[2] / "datasets"
DESCRIPTION = "dataset.json"

_NAME = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]{0,99}(/[A-Za-z0-9][A-Za-z0-9._-]{0,99}){0,3})(@(?P<version>[1-9][0-9]{0,8}))?"
)


class Unreadable(BadDataset):
    """A file of a dataset is missing, or has changed since its chunks were listed."""


class HasChunks(Protocol):
    """Chunks and a selection of their records.

    ``ranges`` (first, end) select the records, counted from 0 through all of the chunks; None: all.
    """

    @property
    def chunks(self) -> Sequence[Chunk]: ...

    @property
    def ranges(self) -> Sequence[tuple[int, int]] | None: ...


def find(name: str, data_path: Sequence[str | Path] = ()) -> DatasetInfo:
    """Return a dataset by name, optionally with the number of its version (``team/mine@3``).

    Raises UnknownDataset with the nearest names, BadDataset if its description is damaged, OSError while descriptors or
    memory are used up.
    """
    return _find(name, data_path) or _refuse(name, data_path)


def locate(name: str, data_path: Sequence[str | Path] = ()) -> DatasetInfo:
    """Return a dataset by name, or files by their path, for a script on this machine. Raises like ``find``."""
    found = _find(name, data_path) or _undescribed(name, data_path) or local_files.find(name)
    return found or _refuse(name, data_path)


def _find(name: str, data_path: Sequence[str | Path]) -> DatasetInfo | None:
    plain, version = _parts(name)
    for folder in (root / plain for root in _roots(data_path) if plain):
        description = folder / DESCRIPTION
        info = version_layout.find(folder) or (_describe(plain, description) if description.is_file() else None)
        if info is not None and version in (None, info.version):
            return info
    return None


def _parts(name: str) -> tuple[str, int | None]:
    """Return name and version; an empty name if the text cannot be one."""
    match = _NAME.fullmatch(name)
    if match is None:
        return "", None
    return match["name"], int(match["version"]) if match["version"] else None


def _undescribed(name: str, data_path: Sequence[str | Path]) -> DatasetInfo | None:
    plain, version = _parts(name)
    if not plain or version is not None:
        return None
    places = (root / plain for root in _roots(data_path) if root.resolve() != SHIPPED)
    return next((info for place in places if place.is_dir() and (info := local_files.of_folder(name, place))), None)


def _refuse(name: str, data_path: Sequence[str | Path]) -> NoReturn:
    raise UnknownDataset(f"There is no dataset {name[:100]!r}. {_suggest(name, names(data_path))}")


def names(data_path: Sequence[str | Path] = ()) -> list[str]:
    """Return the names of all datasets on the search path, at most two folders deep."""
    found = {
        description.parent.relative_to(root).as_posix()
        for root in _roots(data_path)
        for pattern in (f"{depth}/{file}" for depth in ("*", "*/*") for file in (DESCRIPTION, version_layout.VERSION))
        for description in root.glob(pattern)
    }
    return sorted(found)


def chunks(info: DatasetInfo, split: str = "train") -> tuple[Chunk, ...]:
    """Return all chunks of a split, in order.

    Raises UnknownDataset for another split and FormatError for a damaged file.
    """
    if split not in info.splits:
        raise UnknownDataset(f"The dataset {info.name} has no split {split!r}. {_suggest(split, sorted(info.splits))}")
    return info.listing(split)


def read_chunk(chunk: Chunk) -> Iterator[Any]:
    """Yield the records of one chunk: (features, label) for a shipped dataset, else as the chunk's format defines them.

    Raises Unreadable; RecordError if the chunk is unchanged but one of its records makes no sense; Lost while
    descriptors or memory of this process or machine are used up, in which case the chunk exists.
    """
    path = Path(chunk.path)
    try:
        yield from patiently(lambda: _begun(registry.named(chunk.format).read(path, chunk.span)))
    except OSError as error:
        if is_shortage(error):
            raise Lost(messages.PATH_TEMPORARILY_UNREADABLE(path=path.name, error=error.strerror)) from error
        raise Unreadable(messages.FILE_UNREADABLE(file=path.name, error=error.strerror)) from error
    except RecordError:
        raise
    except FormatError as error:
        raise Unreadable(messages.FILE_CHANGED(file=path.name, error=error)) from error


def _begun(records: Iterator[Any]) -> Iterator[Any]:
    """Return the same records with the first one read already: everything is checked before the first is returned."""
    for first in records:
        return chain([first], records)
    return iter(())


def read_task(task: HasChunks) -> Iterator[Any]:
    """Yield the records of a task, in order."""
    return (record for _place, record in read_placed(task))


def read_placed(task: HasChunks) -> Iterator[tuple[int, Any]]:
    """Yield the records of a task with their numbers in it, in order. A chunk without a selected record is not read."""
    begin = 0
    for chunk in task.chunks:
        if task.ranges is None:
            yield from enumerate(read_chunk(chunk), begin)
        elif selected := _selected(task.ranges, begin, begin + chunk.records):
            yield from (placed for placed in enumerate(read_chunk(chunk), begin) if placed[0] in selected)
        begin += chunk.records


def _selected(ranges: Sequence[tuple[int, int]], begin: int, end: int) -> Collection[int]:
    return frozenset(place for first, last in ranges for place in range(max(first, begin), min(last, end)))


def load(info: DatasetInfo, split: str) -> tuple[Features, npt.NDArray[np.generic]]:
    """Return a whole split as arrays: features (n, *shape) float32 and labels (n,) int64 or float32."""
    return record_codec.stack(record for chunk in chunks(info, split) for record in read_chunk(chunk))


def _roots(data_path: Iterable[str | Path]) -> Iterator[Path]:
    yield from (Path(root) for root in data_path)
    yield SHIPPED


def _list(path: Path, name: str) -> tuple[Chunk, ...]:
    def index() -> tuple[Chunk, ...]:
        format_ = registry.named(name) if name else registry.detect(path)
        return tuple(Chunk.of(path, span, format_.name) for span in format_.index(path, CHUNK_BYTES))

    try:
        return patiently(index)
    except OSError as error:
        if is_shortage(error):
            raise
        raise BadDataset(messages.DATASET_FILE_UNREADABLE(path=path, error=error.strerror)) from error


def _suggest(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if near:
        return messages.DID_YOU_MEAN(name=" or ".join(near))
    return messages.AVAILABLE_NAMES(names=", ".join(known)) if known else messages.NONE_INSTALLED()


def _describe(name: str, description: Path) -> DatasetInfo:
    try:
        return _parse(name, description.parent, json.loads(patiently(description.read_bytes)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, UsageError) as error:
        if is_shortage(error):
            raise
        raise BadDataset(messages.DATASET_DESCRIPTION_INVALID(path=description, error=f"{error!r}")) from error


def _parse(name: str, directory: Path, body: Mapping[str, Any]) -> DatasetInfo:
    splits, features = body["splits"], body.get("features")
    format_ = str(body.get("format") or ("" if features is None else FEATURES))
    if format_:
        registry.named(format_)
    files = {split: tuple(_plain_name(file["path"]) for file in part["files"]) for split, part in splits.items()}
    return DatasetInfo(
        name=name,
        title=str(body["title"]),
        task=str(body["task"]),
        features=tuple(int(size) for size in features["shape"]) if features is not None else (),
        format=format_,
        records={split: int(part["records"]) for split, part in splits.items()},
        splits=tuple(files),
        listing=lambda split: tuple(chunk for file in files[split] for chunk in _list(directory / file, format_)),
        source=str(body["source"]),
        licence=str(body["licence"]),
        directory=directory,
    )


def _plain_name(path: str) -> str:
    """Return the name if it is plain: a dataset's files are beside its description and nowhere else."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", path):
        raise ValueError(f"{path!r} is no plain file name")
    return path
