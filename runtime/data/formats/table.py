"""Every format that is read in place, and which of them a file is."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from pathlib import Path, PurePath

from runtime.data import values
from runtime.data.errors import UnknownFormat
from runtime.data.formats import arrays, delimited, images, lines, parquet, recordio, tfrecord, webdataset
from runtime.data.formats.base import Format
from runtime.errors import UsageError

# Enough for every format's first bytes: a member of a tar file, the first record of RecordIO.
HEAD_BYTES = 4096

# The first that recognises a file reads it. The features and labels of a data set are named by its description.
_FORMATS = (
    Format("values", "RecordIO of values", "what was written: numbers, text, arrays, tuples, dicts", (".recordio",),
           recordio.list_chunks, recordio.read_values, values.recognise),
    Format("recordio", "RecordIO", "bytes", (".recordio",),
           recordio.list_chunks, recordio.read_bytes, recordio.recognise),
    Format("features", "RecordIO of features and label", "(float32 array, number)", (),
           recordio.list_chunks, recordio.read_features),
    Format("webdataset", "WebDataset", "dict of __key__ and bytes by extension", (".tar",),
           webdataset.index, webdataset.read, webdataset.recognise, takes_digest=True),
    Format("npy", "NumPy array", "a row", (".npy",),
           arrays.index_array, arrays.read_array, arrays.recognise_array, takes_digest=True),
    Format("npz", "NumPy arrays", "dict of rows", (".npz",),
           arrays.index_arrays, arrays.read_arrays, arrays.recognise_arrays),
    Format("parquet", "Parquet", "dict of columns", (".parquet",), parquet.index, parquet.read, parquet.recognise),
    Format("tfrecord", "TFRecord", "bytes", (".tfrecord", ".tfrecords"),
           tfrecord.index, tfrecord.read, tfrecord.recognise),
    Format("jsonl", "JSON lines", "the value of a line", (".jsonl", ".ndjson"), lines.index_json, lines.read_json),
    Format("csv", "CSV", "dict of columns, tuple where they have no names", (".csv", ".tsv"),
           delimited.index, delimited.read),
    Format("text", "text", "a line", (".txt", ".text"), lines.index_text, lines.read_text),
    Format("list", "files and labels", "(bytes of the file, label)", (".list",), images.index, images.read),
)  # fmt: skip
FORMATS: Mapping[str, Format] = {each.name: each for each in _FORMATS}

_SHARD = re.compile(r"-\d{5}-of-\d{5}")
# What begins like this is packed once more, and cannot be read in pieces.
_PACKED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"\xfd7zXZ\0": "xz"}


def named(name: str) -> Format:
    """The format of that name. Raises UsageError with the nearest."""
    if name not in FORMATS:
        near = difflib.get_close_matches(name, FORMATS, n=2, cutoff=0.5) or sorted(FORMATS)
        raise UsageError(f"There is no format {name[:100]!r}. Did you mean {' or '.join(near)}?")
    return FORMATS[name]


def detect(path: Path) -> Format:
    """The format of a file: by its first bytes, else by the end of its name. Raises UnknownFormat where neither tells,
    OSError if it cannot be read."""
    with path.open("rb") as file:
        return of(path, file.read(HEAD_BYTES))


def of(path: PurePath, head: bytes) -> Format:
    """The same for a file of which the first HEAD_BYTES are at hand."""
    packing = next((how for magic, how in _PACKED.items() if head.startswith(magic)), None)
    if packing:
        raise UnknownFormat(
            f"{path} is packed with {packing}, so that it cannot be read in pieces. Unpack it first.", packed=True
        )
    return next((each for each in _FORMATS if each.recognise(head)), None) or _by_name(path)


def alike(one: Format, other: Format) -> bool:
    """Whether they differ only in what they make of a record, as the formats that lie in RecordIO do."""
    return one.index is other.index


def _by_name(path: PurePath) -> Format:
    suffix = PurePath(_SHARD.sub("", path.name)).suffix.lower()
    for each in _FORMATS:
        if suffix in each.suffixes:
            return each
    known = ", ".join(suffixes())
    raise UnknownFormat(f"{path} is of no format that is known here. Names end in {known}; or say which format it is.")


def suffixes() -> list[str]:
    """The ends of names that tell a format."""
    return sorted({suffix for each in _FORMATS for suffix in each.suffixes})
