"""Conversion of records into shards: RecordIO, WebDataset or TFRecord.

Shards are named ``<prefix>-<number>-of-<last number>.<ending>``, both with five digits and from 0, so that ten shards
end with ``-00009-of-00009``. Record i goes into shard i modulo their number: shards differ in length by at most one
record, and sorted data is spread. All shards appear together at the end, or none.
"""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from runtime.data import value_codec
from runtime.data.errors import FormatError
from runtime.data.formats import registry, tfrecord
from runtime.data.formats.webdataset import KEY, is_safe
from runtime.data.recordio import Writer
from runtime.data.span import CHUNK_BYTES
from runtime.errors import UsageError
from runtime.messages import data as messages

MOST_SHARDS = 1000  # all are open at once
# Total size of the chunks of all shards while they are written.
_BUFFER_BYTES = 256 << 20

Write = Callable[[Any], object]


@dataclass(frozen=True)
class _Target:
    """A target format.

    ``open`` returns, for a file and the number of shards, a context with a function that writes a record.
    """

    suffix: str
    open: Callable[[IO[bytes], int], Any]


def records(paths: Iterable[Path], name: str | None = None) -> Iterator[Any]:
    """Yield all records of the files, in order. Raises FormatError, UsageError and OSError."""
    for path in paths:
        format_ = registry.named(name) if name else registry.detect(path)
        for span in format_.index(path, CHUNK_BYTES):
            yield from format_.read(path, span)


def convert(rows: Iterable[Any], directory: Path, shards: int, prefix: str, to: str = "recordio") -> list[Path]:
    """Write every record once. Return the paths of the shards.

    Raises UsageError for invalid options, FormatError for a record that the target has no form for, and OSError if a
    file cannot be written. After an error none of the shards exists.

    ``to`` is recordio, values, webdataset or tfrecord. In RecordIO and TFRecord, bytes are written unchanged and text
    as UTF-8; anything else needs ``values``. WebDataset accepts dicts as its reader returns them; it makes samples of
    bytes and text.
    """
    if to not in TARGETS:
        raise UsageError(messages.TARGET_FORMAT_UNKNOWN(names=", ".join(TARGETS), name=f"{to!r}"))
    if not 1 <= shards <= MOST_SHARDS:
        raise UsageError(messages.SHARD_COUNT_INVALID(most=MOST_SHARDS, count=shards))
    if not is_safe(prefix) or "/" in prefix:
        raise UsageError(messages.FILE_PREFIX_INVALID(prefix=f"{prefix!r}"))
    target = TARGETS[to]
    directory.mkdir(parents=True, exist_ok=True)
    paths = [directory / f"{prefix}-{number:05}-of-{shards - 1:05}{target.suffix}" for number in range(shards)]
    if taken := [path for path in paths if path.exists()]:
        raise UsageError(messages.OUTPUT_EXISTS(path=taken[0]))
    with _together(paths) as files, ExitStack() as stack:
        writers: list[Write] = [stack.enter_context(target.open(file, shards)) for file in files]
        for number, row in enumerate(rows):
            try:
                writers[number % shards](row)
            except FormatError as error:
                raise FormatError(messages.RECORD_NOT_WRITABLE(number=number, format=to, error=error)) from error
    return paths


@contextmanager
def _together(paths: Iterable[Path]) -> Iterator[list[IO[bytes]]]:
    """Open temporary files beside the paths, and move them there if all goes well."""
    drafts = {path: path.with_name(f".{path.name}.{os.getpid()}") for path in paths}
    try:
        with ExitStack() as stack:
            files: list[IO[bytes]] = [stack.enter_context(draft.open("xb")) for draft in drafts.values()]
            yield files
            for file in files:
                file.flush()
                os.fsync(file.fileno())
        for path, draft in drafts.items():
            draft.rename(path)
    finally:
        for draft in drafts.values():
            draft.unlink(missing_ok=True)


# --- Targets ---------------------------------------------------------------------------------------------------------
@contextmanager
def _recordio(file: IO[bytes], shards: int, encode: Callable[[Any], bytes]) -> Iterator[Write]:
    with Writer(file, max_chunk_bytes=min(CHUNK_BYTES, _BUFFER_BYTES // shards)) as writer:
        yield lambda row: writer.write(encode(row))


@contextmanager
def _tfrecord(file: IO[bytes], shards: int) -> Iterator[Write]:
    del shards
    yield lambda row: tfrecord.write(file, _as_bytes(row))


@contextmanager
def _webdataset(file: IO[bytes], shards: int) -> Iterator[Write]:
    del shards
    count = 0

    def write(row: Any) -> None:
        nonlocal count
        sample = row if isinstance(row, dict) and KEY in row else _sample(row, count)
        for extension, content in sample.items():
            if extension != KEY:
                _add(archive, f"{sample[KEY]}.{extension}", _as_bytes(content))
        count += 1

    with tarfile.open(fileobj=file, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        yield write


def _sample(row: Any, number: int) -> Mapping[str, Any]:
    """Return a WebDataset sample for another record: the file and the label of a list, or bytes or text alone."""
    key = f"{number:09}"
    if isinstance(row, tuple) and len(row) == 2 and isinstance(row[0], bytes) and isinstance(row[1], int | str):
        return {KEY: key, "bin": row[0], "cls": str(row[1])}
    return {KEY: key, "txt" if isinstance(row, str) else "bin": row}


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    """Add a member. The same samples produce the same bytes: no time and no owner is written."""
    if not is_safe(name):
        raise FormatError(messages.SAMPLE_NAME_OUTSIDE_FOLDER(name=f"{name!r}"))
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), 0o644
    archive.addfile(member, io.BytesIO(content))


def _as_bytes(row: Any) -> bytes:
    if isinstance(row, bytes | bytearray | memoryview):
        return bytes(row)
    if isinstance(row, str):
        return row.encode()
    raise FormatError(messages.RECORD_NOT_BYTES_OR_TEXT(kind=type(row).__name__))


TARGETS: Mapping[str, _Target] = {
    "recordio": _Target(".recordio", lambda file, shards: _recordio(file, shards, _as_bytes)),
    "values": _Target(".recordio", lambda file, shards: _recordio(file, shards, value_codec.encode)),
    "webdataset": _Target(".tar", _webdataset),
    "tfrecord": _Target(".tfrecord", _tfrecord),
}
