"""Which files of a version jobs read records of, and in which format. Pure.

Each file tells by its first bytes or its name what it is (``runtime.data.formats.table``); the data set may have been
said to be of one format. A file of which no records are read is still a file of the version.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from runtime.data.formats import table

# What a data set is said to be that is kept as it is.
FILES = "files"
# What a version is whose files are of several formats.
MIXED = "mixed"
SAYABLE = (*table.FORMATS, FILES)

_TEXT = "text"


class Unread(StrEnum):
    """Why no records of a file are read."""

    UNKNOWN = "unknown"
    PACKED = "packed"
    BESIDE = "beside"
    OTHER = "other"


WORDS: Mapping[Unread, str] = {
    Unread.UNKNOWN: "It is of no format that is known here: it is kept as it is, and jobs read no records of it.",
    Unread.PACKED: "It is packed as a whole: it is kept as it is, and jobs read no records of it. Unpack it and upload "
    "it again to train on it.",
    Unread.BESIDE: "It is text beside files of another format: it is kept as it is, and jobs read no records of it.",
    Unread.OTHER: "It is not of the format of this data set: it is kept as it is, and jobs read no records of it.",
}


class Chosen(NamedTuple):
    """``format`` is the name of one, or empty, and then ``unread`` says why."""

    format: str
    unread: Unread | None = None


def choose(found: Mapping[str, str | Unread], said: str) -> Mapping[str, Chosen]:
    """By path, how each file is read. ``found`` is the format that each told, or why it told none; ``said`` is what
    the data set was said to be, or empty."""
    if said == FILES:
        return {path: Chosen("") for path in found}
    if said:
        return _as_said(found, said)
    with_text = [path for path, format_ in found.items() if format_ == _TEXT]
    others = any(format_ in table.FORMATS and format_ != _TEXT for format_ in found.values())
    told = dict.fromkeys(with_text, Unread.BESIDE) if others else {}
    return {path: _chosen(told.get(path, format_)) for path, format_ in found.items()}


def _chosen(format_: str | Unread) -> Chosen:
    return Chosen("", format_) if isinstance(format_, Unread) else Chosen(format_)


def _as_said(found: Mapping[str, str | Unread], said: str) -> Mapping[str, Chosen]:
    """The files that look like it; where none does, because their names say nothing, all of them."""
    fitting = {path for path, format_ in found.items() if _fits(format_, said)} or set(found)
    return {path: Chosen(said) if path in fitting else Chosen("", Unread.OTHER) for path in found}


def _fits(format_: str | Unread, said: str) -> bool:
    return not isinstance(format_, Unread) and table.alike(table.named(format_), table.named(said))


def of_version(chosen: Mapping[str, Chosen]) -> str:
    """What the version is as a whole: the format of its records, ``mixed`` or ``files``."""
    formats = {each.format for each in chosen.values() if each.format}
    if len(formats) > 1:
        return MIXED
    return next(iter(formats), FILES)
