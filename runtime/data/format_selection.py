"""Selection of the files of a version whose records jobs read, and of their formats. Pure.

The format of each file is detected from its first bytes or its name (``runtime.data.formats.registry``). The dataset
may be declared to be of one format. A file whose records are not read is still a file of the version.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from runtime.data.formats import classes, idx, registry
from runtime.messages import data as messages

# Declared format of a dataset whose files are kept as they are.
FILES = "files"
# Format of a version whose files are of several formats.
MIXED = "mixed"
DECLARABLE = (*registry.FORMATS, FILES)

_TEXT, _IDX, _IMAGE = "text", "idx", "image"


class Unread(StrEnum):
    """Why no records of a file are read."""

    UNKNOWN = "unknown"
    PACKED = "packed"
    BESIDE = "beside"
    OTHER = "other"
    LABELS = "labels"
    PICTURE = "picture"
    UNLISTED = "unlisted"
    SPLIT = "split"


MESSAGES: Mapping[Unread, str] = {
    Unread.UNKNOWN: messages.UNREAD_FORMAT_UNSUPPORTED(),
    Unread.PACKED: messages.UNREAD_PACKED(),
    Unread.BESIDE: messages.UNREAD_TEXT_AMONG_OTHER_FILES(),
    Unread.OTHER: messages.UNREAD_OTHER_FORMAT(),
    Unread.PICTURE: messages.UNREAD_IMAGE_WITHOUT_CLASS_FOLDER(),
    Unread.UNLISTED: messages.UNREAD_NOT_IN_STATE(),
    Unread.SPLIT: messages.UNREAD_SPLIT_UNUSED(),
    Unread.LABELS: messages.UNREAD_LABELS_OF_IMAGES(),
}


class Chosen(NamedTuple):
    """Decision for one file. ``format`` is its format, or empty with the reason in ``unread``."""

    format: str
    unread: Unread | None = None


def choose(found: Mapping[str, str | Unread], declared: str) -> Mapping[str, Chosen]:
    """Return by path how each file is read.

    ``found`` has the detected format of each file, or why none was detected. ``declared`` is the dataset's declared
    format, or empty.
    """
    if declared == FILES:
        return {path: Chosen("") for path in found}
    if declared:
        return _as_declared(found, declared)
    unread: dict[str, Unread] = dict.fromkeys(labels(found), Unread.LABELS)
    with_text, pictures = _of_format(found, _TEXT), _of_format(found, _IMAGE)
    others = len(found) - len(with_text) - len(pictures) - sum(isinstance(each, Unread) for each in found.values())
    if others or not classes.are_classes(pictures):
        unread |= dict.fromkeys(pictures, Unread.PICTURE)
    if others or (pictures and not unread.keys() >= set(pictures)):
        unread |= dict.fromkeys(with_text, Unread.BESIDE)
    return {path: _chosen(unread.get(path, format_)) for path, format_ in found.items()}


def in_order(formats: Mapping[str, str]) -> list[str]:
    """Return the paths in the order in which jobs read them: unchanged, but with pictures of all classes in turn."""
    pictures = [path for path, format_ in formats.items() if format_ == _IMAGE]
    return [*(path for path, format_ in formats.items() if format_ != _IMAGE), *classes.spread(pictures)]


def _of_format(found: Mapping[str, str | Unread], name: str) -> list[str]:
    return [path for path, format_ in found.items() if format_ == name]


def labels(found: Mapping[str, str | Unread]) -> Mapping[str, str]:
    """Map the IDX files that hold the labels of images to the files of these images."""
    files = {path for path, format_ in found.items() if format_ == _IDX}
    pairs = ((idx.labels_of(path, files), path) for path in sorted(files))
    return {of_images: path for of_images, path in pairs if of_images}


def _chosen(format_: str | Unread) -> Chosen:
    return Chosen("", format_) if isinstance(format_, Unread) else Chosen(format_)


def _as_declared(found: Mapping[str, str | Unread], declared: str) -> Mapping[str, Chosen]:
    """Select the files that may be of the declared format. If none is, because the names reveal nothing, select all."""
    fitting = {path for path, format_ in found.items() if _fits(format_, declared)} or set(found)
    paired = labels(dict.fromkeys(fitting, declared))
    unread = {path: Unread.LABELS if path in paired else Unread.OTHER for path in found}
    return {
        path: Chosen(declared) if path in fitting and path not in paired else Chosen("", unread[path]) for path in found
    }


def _fits(format_: str | Unread, declared: str) -> bool:
    return not isinstance(format_, Unread) and registry.alike(registry.named(format_), registry.named(declared))


def of_version(chosen: Mapping[str, Chosen]) -> str:
    """Return the format of the whole version: the format of its records, ``mixed`` or ``files``."""
    formats = {each.format for each in chosen.values() if each.format}
    if len(formats) > 1:
        return MIXED
    return next(iter(formats), FILES)
