"""WebDataset: a tar file in which members with the same name, up to the first dot of its last part, are one sample.

A sample is a dict of ``__key__`` and, by the rest of the name, the bytes of each member. Members are read in the tar
file, and nothing is unpacked onto the disk. All the same, names that would lead out of a folder are refused, because
users may unpack the file later. So are links, devices and sparse members: their bytes are not in the file. A member
without a dot belongs to no sample and is skipped, as in WebDataset.

The layout is that of POSIX.1-2001 (pax) and of GNU tar for long names.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from runtime.data.errors import FormatError
from runtime.data.formats.base import File, read_bytes, too_large
from runtime.data.span import MAX_CHUNK_BYTES, Span
from runtime.messages import data as messages

KEY = "__key__"
BLOCK_BYTES = 512

_BUFFER_BYTES = 1 << 20
# Size of a name, or of a member's pax header.
_MOST_ABOUT_A_MEMBER = 1 << 20
_REGULAR, _FOLDER = b"0\0" + b"7", b"5"
_PAX, _PAX_FOR_ALL, _LONG_NAME, _LONG_LINK = b"x", b"g", b"L", b"K"
_ABOUT = _PAX + _PAX_FOR_ALL + _LONG_NAME + _LONG_LINK
_NOT_READ = {
    b"1": messages.A_LINK(),
    b"2": messages.A_LINK(),
    b"3": messages.A_DEVICE(),
    b"4": messages.A_DEVICE(),
    b"6": messages.A_PIPE(),
    b"S": messages.A_SPARSE_FILE(),
}

# ``read(offset, length)``: bytes of the file.
_Read = Callable[[int, int], bytes]


class _Member(NamedTuple):
    """A member: its headers start at ``begin``, its bytes at ``data``, and the next member at ``end``."""

    begin: int
    name: str
    data: int
    size: int
    end: int


class _Head(NamedTuple):
    kind: bytes
    name: str
    size: int


def recognise(head: bytes) -> bool:
    if len(head) < BLOCK_BYTES or not any(head[:BLOCK_BYTES]):
        return False
    return _checksum_fits(head[:BLOCK_BYTES])


def index(path: File, chunk_bytes: int) -> Iterator[Span]:
    size = path.stat().st_size
    begin, end, records = 0, 0, 0
    with path.open("rb", buffering=_BUFFER_BYTES) as file:

        def read_at(offset: int, length: int) -> bytes:
            file.seek(offset)
            return file.read(length)

        for first, last in _samples(path, read_at, size):
            if last - first > MAX_CHUNK_BYTES:
                raise too_large(path, first, last - first)
            if records and last - begin > chunk_bytes:
                yield Span(begin, end - begin, records)
                records = 0
            begin, end, records = begin if records else first, last, records + 1
    if records:
        yield Span(begin, end - begin, records)


def read(path: File, span: Span) -> Iterator[dict[str, Any]]:
    data = read_bytes(path, span)
    samples: list[dict[str, Any]] = []
    for member in _members(path, lambda offset, length: data[offset : offset + length], len(data), span.offset):
        key, extension = _split(member.name)
        if not extension:
            continue
        if not samples or samples[-1][KEY] != key:
            samples.append({KEY: key})
        if extension in samples[-1]:
            raise _double(path, key, extension)
        samples[-1][extension] = data[member.data : member.data + member.size]
    if len(samples) != span.records:
        raise FormatError(
            messages.FILE_CHANGED_SINCE_INDEXED(where=messages.CHUNK_PLACE(path=path, offset=span.offset))
        )
    return iter(samples)


def is_safe(name: str) -> bool:
    """Return whether a name stays in the folder into which it is unpacked."""
    return bool(name) and not name.startswith("/") and ".." not in name.split("/") and "\0" not in name


def _samples(path: File, read_at: _Read, size: int) -> Iterator[tuple[int, int]]:
    """Yield where each sample begins and ends."""
    key, begin, end = None, 0, 0
    extensions: set[str] = set()
    for member in _members(path, read_at, size, 0):
        ours, extension = _split(member.name)
        if not extension:
            continue
        if ours != key:
            if key is not None:
                yield begin, end
            key, begin, extensions = ours, member.begin, set()
        if extension in extensions:
            raise _double(path, ours, extension)
        extensions.add(extension)
        end = member.end
    if key is not None:
        yield begin, end


def _double(path: File, key: str, extension: str) -> FormatError:
    return FormatError(messages.SAMPLE_MEMBER_DUPLICATE(path=path, key=key, name=extension))


def _split(name: str) -> tuple[str, str]:
    """Return the key of the sample and the member's name in it; nothing for a member of no sample."""
    folder, slash, last = name.rpartition("/")
    stem, _, extension = last.partition(".")
    return (folder + slash + stem, extension.lower()) if stem else ("", "")


# --- Members ---------------------------------------------------------------------------------------------------------
def _members(path: File, read_at: _Read, size: int, base: int) -> Iterator[_Member]:
    """Yield the regular members, up to the file's end or the two empty blocks there.

    ``base`` is the offset in the file of the bytes that ``read_at`` returns.
    """
    at = begin = 0
    attributes: dict[str, str] = {}
    while at < size:
        block = read_at(at, BLOCK_BYTES)
        if len(block) == BLOCK_BYTES and not any(block):
            return
        where = messages.OFFSET_PLACE(path=path, offset=base + at)
        head = _parse(where, block)
        length = (
            _length(where, attributes.pop("size", None))
            if head.kind not in _ABOUT and "size" in attributes
            else head.size
        )
        data, at = at + BLOCK_BYTES, at + BLOCK_BYTES + -(-length // BLOCK_BYTES) * BLOCK_BYTES
        if data + length > size:
            raise FormatError(messages.TAR_MEMBER_TRUNCATED(where=where))
        if head.kind in _ABOUT:
            attributes |= _about(where, head.kind, read_at, data, length)
            continue
        name, attributes = attributes.get("path", head.name), {}
        if head.kind in _NOT_READ:
            raise FormatError(messages.TAR_MEMBER_NOT_REGULAR(where=where, name=f"{name!r}", kind=_NOT_READ[head.kind]))
        if not is_safe(name.removesuffix("/")):
            raise FormatError(messages.TAR_MEMBER_OUTSIDE_FOLDER(where=where, name=f"{name!r}"))
        if head.kind in _REGULAR:
            yield _Member(begin, name, data, length, min(at, size))
        elif head.kind != _FOLDER:
            raise FormatError(messages.TAR_MEMBER_TYPE_UNKNOWN(where=where, name=f"{name!r}", kind=f"{head.kind!r}"))
        begin = at


def _parse(where: str, block: bytes) -> _Head:
    if len(block) < BLOCK_BYTES or not _checksum_fits(block):
        raise FormatError(messages.TAR_MEMBER_MISSING(where=where))
    name = _text(block[:100])
    # GNU tar keeps times where other programs keep the first part of a long name.
    if block[257:263] == b"ustar\0" and (prefix := _text(block[345:500])):
        name = f"{prefix}/{name}"
    return _Head(block[156:157], name, _number(where, block[124:136]))


def _about(where: str, kind: bytes, read_at: _Read, data: int, length: int) -> dict[str, str]:
    """Return a header's relevant attributes of the next member: its path and size."""
    if length > _MOST_ABOUT_A_MEMBER:
        raise FormatError(messages.TAR_MEMBER_HEADER_TOO_LARGE(where=where, size=length, most=_MOST_ABOUT_A_MEMBER))
    content = read_at(data, length)
    if kind == _LONG_NAME:
        return {"path": _text(content)}
    if kind != _PAX:
        return {}
    attributes = dict(_pax(where, content))
    if any(keyword.startswith("GNU.sparse") for keyword in attributes):
        raise FormatError(messages.TAR_NEXT_MEMBER_NOT_REGULAR(where=where, kind=_NOT_READ[b"S"]))
    return {keyword: attributes[keyword] for keyword in ("path", "size") if keyword in attributes}


def _pax(where: str, content: bytes) -> Iterator[tuple[str, str]]:
    """Yield the entries of lines ``length word=value``. The length counts the whole line."""
    while content:
        length = content.partition(b" ")[0]
        size = int(length) if length.isdigit() and len(length) < 8 else 0
        keyword, equals, value = content[len(length) + 1 : size - 1].partition(b"=")
        if not equals or content[size - 1 : size] != b"\n":
            raise FormatError(messages.TAR_MEMBER_HEADER_DAMAGED(where=where))
        yield _text(keyword), _text(value)
        content = content[size:]


def _text(field: bytes) -> str:
    return os.fsdecode(field.partition(b"\0")[0])


def _number(where: str, field: bytes) -> int:
    """Return a number from octal digits or, if the first bit is set, big-endian (GNU)."""
    if field[0] & 0x80:
        return int.from_bytes(bytes([field[0] & 0x7F]) + field[1:], "big")
    digits = field.strip(b" \0")
    if not all(digit in b"01234567" for digit in digits):
        raise FormatError(messages.TAR_MEMBER_SIZE_INVALID(where=where))
    return int(digits or b"0", 8)


def _length(where: str, digits: str | None) -> int:
    if digits is None or not digits.isascii() or not digits.isdigit() or len(digits) > 18:
        raise FormatError(messages.TAR_MEMBER_SIZE_INVALID(where=where))
    return int(digits)


def _checksum_fits(block: bytes) -> bool:
    """Return whether the checksum fits: the sum of all bytes of the header, with blanks for its own field."""
    digits = block[148:156].strip(b" \0")
    if not digits or not all(digit in b"01234567" for digit in digits):
        return False
    return int(digits, 8) == sum(block) - sum(block[148:156]) + 8 * ord(" ")
