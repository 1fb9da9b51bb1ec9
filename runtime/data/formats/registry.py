"""Registry of all formats that are read in place, and detection of a file's format."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from pathlib import Path, PurePath

from runtime.data import value_codec
from runtime.data.errors import UnknownFormat
from runtime.data.formats import (
    arrays,
    arrow,
    classes,
    delimited,
    example,
    gzipped,
    idx,
    images,
    lines,
    parquet,
    recordio,
    tfrecord,
    webdataset,
)
from runtime.data.formats.base import Format
from runtime.errors import UsageError
from runtime.messages import Template, paragraph
from runtime.messages import data as messages

# Enough for every format's first bytes: a member of a tar file, the first record of RecordIO.
HEAD_BYTES = 4096

_index_tfrecord = gzipped.index(tfrecord.index, tfrecord.recognise)

# The first format that recognises a file reads it. Only a dataset's description selects its features and labels.
_FORMATS = (
    Format("values", "RecordIO of values", "what was written: numbers, text, arrays, tuples, dicts", (".recordio",),
           recordio.list_chunks, recordio.read_values, value_codec.recognise),
    Format("recordio", "RecordIO", "bytes", (".recordio",),
           recordio.list_chunks, recordio.read_bytes, recordio.recognise),
    Format("features", "RecordIO of features and label", "(float32 array, number)", (),
           recordio.list_chunks, recordio.read_features),
    Format("webdataset", "WebDataset", "dict of __key__ and bytes by extension", (".tar",),
           gzipped.index(webdataset.index, webdataset.recognise), gzipped.read(webdataset.read, webdataset.recognise),
           webdataset.recognise, takes_digest=True, packable=True),
    Format("npy", "NumPy array", "a row", (".npy",),
           gzipped.index(arrays.index_array), gzipped.read(arrays.read_array), arrays.recognise_array,
           takes_digest=True, packable=True),
    Format("npz", "NumPy arrays", "dict of rows", (".npz",),
           arrays.index_arrays, arrays.read_arrays, arrays.recognise_arrays, splits=arrays.splits),
    Format("parquet", "Parquet", "dict of columns", (".parquet",), parquet.index, parquet.read, parquet.recognise),
    Format("arrow", "Arrow", "dict of columns", (".arrow", ".feather"), arrow.index, arrow.read, arrow.recognise,
           takes_digest=True),
    Format("tfrecord", "TFRecord", "bytes", (".tfrecord", ".tfrecords"),
           _index_tfrecord, gzipped.read(tfrecord.read, tfrecord.recognise), tfrecord.recognise, packable=True),
    Format("example", "TFRecord of tf.train.Example", "dict of features", (),
           _index_tfrecord, gzipped.read(example.read, tfrecord.recognise), packable=True),
    Format("idx", "IDX", "a row; (image, label) where labels lie beside images", (".idx",),
           gzipped.index(idx.index), gzipped.read(idx.read), idx.recognise, takes_digest=True, packable=True),
    Format("jsonl", "JSON lines", "the value of a line", (".jsonl", ".ndjson"),
           gzipped.index(lines.index_json), gzipped.read(lines.read_json), packable=True),
    Format("csv", "CSV", "dict of columns, tuple where they have no names", (".csv", ".tsv"),
           gzipped.index(delimited.index), gzipped.read(delimited.read), packable=True),
    Format("text", "text", "a line", (".txt", ".text"),
           gzipped.index(lines.index_text), gzipped.read(lines.read_text), packable=True),
    Format("list", "files and labels", "(bytes of the file, label)", (".list",), images.index, images.read),
    Format("image", "pictures in a folder per class", "(bytes of the file, class)", (),
           classes.index, classes.read, classes.recognise, takes_digest=True),
)  # fmt: skip
FORMATS: Mapping[str, Format] = {each.name: each for each in _FORMATS}

_SHARD = re.compile(r"-\d{5}-of-\d{5}")
# First bytes of packed files. Only gzip is read.
_PACKED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"\xfd7zXZ\0": "xz"}
# First bytes of unsupported formats, with what to do about each.
_PICKLE = messages.PICKLE_UNSUPPORTED
_FOREIGN: Mapping[bytes, Template] = {
    b"\x89HDF\r\n\x1a\n": messages.HDF5_UNSUPPORTED,
    b"PK\x03\x04": messages.ZIP_UNSUPPORTED,
    b"PK\x05\x06": messages.ZIP_EMPTY,
    b"\x80\x04": _PICKLE,
    b"\x80\x05": _PICKLE,
}


def named(name: str) -> Format:
    """Return the format of that name. Raises UsageError with the nearest names."""
    if name not in FORMATS:
        near = difflib.get_close_matches(name, FORMATS, n=2, cutoff=0.5) or sorted(FORMATS)
        raise UsageError(
            paragraph(messages.FORMAT_NOT_FOUND(name=f"{name[:100]!r}"), messages.DID_YOU_MEAN(name=" or ".join(near)))
        )
    return FORMATS[name]


def detect(path: Path) -> Format:
    """Return the format of a file: by its first bytes, else by the suffix of its name.

    Raises UnknownFormat if neither identifies it, and OSError if it cannot be read.
    """
    with path.open("rb") as file:
        return of(path, file.read(HEAD_BYTES))


def of(path: PurePath, head: bytes) -> Format:
    """Return the format of a file whose first HEAD_BYTES are given."""
    if found := _by_content(head):
        return found
    inside = _packed(path, head) if head.startswith(gzipped.MAGIC) else None
    packing = next((how for magic, how in _PACKED.items() if head.startswith(magic)), None)
    if packing and not inside:
        raise UnknownFormat(messages.FILE_PACKED(path=path, packing=packing), packed=True)
    return inside or _by_name(path, head)


def _by_content(head: bytes) -> Format | None:
    return next((each for each in _FORMATS if each.recognise(head)), None)


def _packed(path: PurePath, head: bytes) -> Format | None:
    """Return the format of the content of a gzip file, if it is read in packed form."""
    name = gzipped.unpacked_name(path.with_name(_SHARD.sub("", path.name)))
    try:
        found = _by_content(gzipped.unpacked_head(head)) or _by_name(name)
    except UnknownFormat:
        return None
    return found if found.packable else None


def unpacked_size(path: Path, format_: Format) -> int | None:
    """Return the size of a packed file's content, in which its chunks lie, or None if it is not packed."""
    is_packed = format_.packable and gzipped.is_packed(path, format_.recognise)
    return gzipped.Unpacked(path).stat().st_size if is_packed else None


def alike(one: Format, other: Format) -> bool:
    """Return whether the formats differ only in how they decode a record, as the formats within RecordIO do."""
    return one.index is other.index


def _by_name(path: PurePath, head: bytes = b"") -> Format:
    suffix = PurePath(_SHARD.sub("", path.name)).suffix.lower()
    for each in _FORMATS:
        if suffix in each.suffixes:
            return each
    if message := next((message for first, message in _FOREIGN.items() if head.startswith(first)), None):
        raise UnknownFormat(message(path=path), foreign=True)
    known = ", ".join(suffixes())
    raise UnknownFormat(messages.FILE_FORMAT_UNSUPPORTED(path=path, known=known))


def suffixes() -> list[str]:
    """Return the suffixes of names that identify a format."""
    return sorted({suffix for each in _FORMATS for suffix in each.suffixes})
