"""Small files of every format, with their records."""

from __future__ import annotations

import csv
import io
import json
import struct
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from runtime.data import record_codec, value_codec
from runtime.data.formats import registry, tfrecord
from runtime.data.recordio import Writer
from runtime.data.span import CHUNK_BYTES, Span


def chunks(path: Path, name: str | None = None, chunk_bytes: int = CHUNK_BYTES) -> list[Span]:
    format_ = registry.named(name) if name else registry.detect(path)
    return list(format_.index(path, chunk_bytes))


def read(path: Path, name: str | None = None, chunk_bytes: int = CHUNK_BYTES) -> list[Any]:
    """Return all records, chunk by chunk. Each chunk has as many as its index counts."""
    format_ = registry.named(name) if name else registry.detect(path)
    found = []
    for span in format_.index(path, chunk_bytes):
        of_chunk = list(format_.read(path, span))
        assert len(of_chunk) == span.records
        found += of_chunk
    return found


def recordio(path: Path, rows: list[bytes]) -> None:
    with path.open("wb") as file, Writer(file, max_chunk_bytes=64) as writer:
        for row in rows:
            writer.write(row)


def tar(path: Path, samples: list[Mapping[str, Any]], format_: int = tarfile.PAX_FORMAT) -> None:
    with tarfile.open(path, "w", format=format_) as archive:
        for sample in samples:
            for extension, content in sample.items():
                if extension != "__key__":
                    info = tarfile.TarInfo(f"{sample['__key__']}.{extension}")
                    info.size = len(content)
                    archive.addfile(info, io.BytesIO(content))


def of_tensorflow(path: Path, rows: list[bytes]) -> None:
    with path.open("wb") as file:
        for row in rows:
            tfrecord.write(file, row)


def json_lines(path: Path, rows: list[Any]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def comma_separated(path: Path, rows: list[Mapping[str, str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else ["a"])
        writer.writeheader()
        writer.writerows(rows)


def of_mnist(path: Path, rows: list[Any]) -> None:
    """Images of one dimension, without labels."""
    array = np.array(rows, np.uint8)
    path.write_bytes(
        struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()
    )


def varint(value: int) -> bytes:
    head = b""
    while value > 0x7F:
        head, value = head + bytes([value & 0x7F | 0x80]), value >> 7
    return head + bytes([value])


def field(number: int, content: bytes) -> bytes:
    """A field of bytes in a protocol buffer."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def example(row: Mapping[str, Any]) -> bytes:
    """Return a tf.train.Example as TensorFlow writes it, with packed numbers."""
    entries = b""
    for name, value in row.items():
        items = value if isinstance(value, list) else [value]
        if isinstance(items[0], bytes):
            feature = field(1, b"".join(field(1, item) for item in items))
        elif isinstance(items[0], float):
            feature = field(2, field(1, struct.pack(f"<{len(items)}f", *items)))
        else:
            feature = field(3, field(1, b"".join(varint(item % 2**64) for item in items)))
        entries += field(1, field(1, name.encode()) + field(2, feature))
    return field(1, entries)


def pictures(path: Path, rows: list[Any]) -> None:
    """Write the first file: each file is one record."""
    path.write_bytes(rows[0][0])


def listed(path: Path, rows: list[tuple[bytes, Any]]) -> None:
    lines = []
    for number, (content, label) in enumerate(rows):
        (path.parent / f"{number}.png").write_bytes(content)
        lines.append(f"{number}.png\t{label}\n")
    path.write_text("".join(lines))


def parquet(path: Path, rows: list[Any]) -> None:
    import pyarrow
    from pyarrow import parquet as files

    files.write_table(pyarrow.Table.from_pylist(rows), path, row_group_size=2)


def arrow(path: Path, rows: list[Any]) -> None:
    import pyarrow

    table = pyarrow.Table.from_pylist(rows)
    with pyarrow.OSFile(str(path), "wb") as file, pyarrow.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)


SAMPLES = [
    {"__key__": "train/数字 1", "png": b"\x89PNG" * 3, "cls": b"7"},
    {"__key__": "train/b", "png": b"", "cls": b"1"},
]
ROWS = [{"a": "1", "b": 'x "y"\r\nz, w'}, {"a": "数字", "b": ""}, {"a": " ", "b": "\n"}]
# Formats that need the package pyarrow.
OF_PYARROW = frozenset({"arrow", "parquet"})
# By format: the suffix of a name, records, and the function that writes them into a file.
FILES: Mapping[str, tuple[str, list[Any], Callable[[Path, Any], object]]] = {
    "recordio": (".recordio", [b"one", b"", b"three" * 30], recordio),
    "values": (
        ".recordio",
        [1, ("x", [2.5, None]), {"数": b"\0\1"}],
        lambda path, rows: recordio(path, list(map(value_codec.encode, rows))),
    ),
    "features": (
        ".features",
        [([1.0, 2.0, 3.0] * 5, 3), ([4.0], 6)],
        lambda path, rows: recordio(path, [record_codec.encode(*row) for row in rows]),
    ),
    "webdataset": (".tar", SAMPLES, tar),
    "tfrecord": (".tfrecord-00000-of-00002", [b"hello", b"", bytes(300)], of_tensorflow),
    "jsonl": (".jsonl", [{"a": [1, "数字"]}, 2, "x\ny", None], json_lines),
    "csv": (".csv", ROWS, comma_separated),
    "text": (".txt", ["one", "", "数字 three"], lambda path, rows: path.write_text("\n".join([*rows, ""]))),
    "npy": (".npy", [[1, 2, 3], [4, 5, 6]], lambda path, rows: np.save(path, np.array(rows))),
    "npz": (
        ".npz",
        [{"x": [1.5, 2.5], "y": 1}, {"x": [3.5, 4.5], "y": 2}],
        lambda path, rows: np.savez(
            path, x=np.array([row["x"] for row in rows]), y=np.array([row["y"] for row in rows])
        ),
    ),
    "example": (
        ".examples",
        [{"x": [1.5, 2.5], "y": -1, "数": b"a"}, {"x": 0.5, "y": [1, 2**62], "数": [b"", b"b"]}],
        lambda path, rows: of_tensorflow(path, list(map(example, rows))),
    ),
    "image": ("", [(b"\xff\xd8\xff picture", "cat")], pictures),
    "idx": (".idx", [[1, 2, 3], [4, 5, 6]], of_mnist),
    "list": (".list", [(b"one", 7), (b"", -1), (b"\xff", "cat")], listed),
    "parquet": (".parquet", [{"a": 1, "b": "x"}, {"a": 2, "b": None}, {"a": 3, "b": "数"}], parquet),
    "arrow": (".arrow", [{"a": 1, "b": "x"}, {"a": 2, "b": None}, {"a": 3, "b": "数"}], arrow),
}


def make(name: str, folder: Path, rows: list[Any] | None = None) -> tuple[Path, list[Any]]:
    suffix, own, write = FILES[name]
    rows = own if rows is None else rows
    folder = folder / "cat" if name == "image" else folder
    folder.mkdir(exist_ok=True)
    path = folder / f"data{suffix}"
    write(path, rows)
    return path, rows


def plain(record: Any) -> Any:
    """Return a record with lists in place of arrays, for comparison."""
    if isinstance(record, dict):
        return {key: plain(value) for key, value in record.items()}
    if isinstance(record, tuple):
        return tuple(map(plain, record))
    return record.tolist() if hasattr(record, "tolist") and not isinstance(record, memoryview) else record
