"""A folder of images (or other files) with a ``.list`` file: in each line a relative path, a TAB, a label.

A record is the bytes of the file and its label, as a number if the list has digits. Paths that lead out of the folder
of the list are refused, whether by their name or by a link on the way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from runtime.data.errors import FormatError
from runtime.data.formats.base import File, read_bytes, too_large
from runtime.data.formats.lines import cut, filled, not_utf8, without_mark
from runtime.data.formats.webdataset import is_safe
from runtime.data.span import MAX_CHUNK_BYTES, Span
from runtime.messages import data as messages
from runtime.patience import is_shortage

Label = int | str
# Lines of a list are short and files are not: a chunk of the list is shorter than one of data by this factor.
_SHARE = 256
_NUMBER = re.compile(r"-?[0-9]{1,18}")


def index(path: Path, chunk_bytes: int) -> Iterator[Span]:
    return cut(path, max(1, chunk_bytes // _SHARE), lambda path, offset, data: len(_entries(path, offset, data)))


def read(path: Path, span: Span) -> Iterator[tuple[bytes, Label]]:
    folder = path.parent.resolve()
    for name, label in _entries(path, span.offset, read_bytes(path, span)):
        yield _content(path, folder, name), label


def names(path: Path, span: Span) -> Iterator[str]:
    """Yield the files that a chunk of the list names, relative to it."""
    return (name for name, _ in _entries(path, span.offset, read_bytes(path, span)))


def _entries(path: File, offset: int, data: bytes) -> list[tuple[str, Label]]:
    try:
        return [_entry(path, offset, line) for line in filled(without_mark(offset, data))]
    except UnicodeDecodeError as error:
        raise not_utf8(path, offset, error) from None


def _entry(path: File, offset: int, line: bytes) -> tuple[str, Label]:
    name, tab, label = line.decode().rstrip("\r").partition("\t")
    if not tab or not is_safe(name):
        where = messages.CHUNK_PLACE(path=path, offset=offset)
        raise FormatError(messages.LIST_LINE_INVALID(where=where, line=f"{name[:200]!r}"))
    return name, int(label) if _NUMBER.fullmatch(label) else label


def _content(path: Path, folder: Path, name: str) -> bytes:
    try:
        file = (folder / name).resolve(strict=True)
        if not file.is_relative_to(folder) or not file.is_file():
            raise FormatError(messages.LISTED_FILE_OUTSIDE_FOLDER(where=path, name=f"{name!r}"))
        if (size := file.stat().st_size) > MAX_CHUNK_BYTES:
            raise too_large(file, 0, size)
        return file.read_bytes()
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        if is_shortage(error):
            raise
        why = getattr(error, "strerror", None) or str(error)
        raise FormatError(messages.LISTED_FILE_UNREADABLE(path=path, name=f"{name!r}", error=why)) from None
