"""Table of the first records of a file, in every format, and of malicious files."""

from __future__ import annotations

import base64
import json
import struct
import zipfile
import zlib
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datasets import messages as datasets_messages
from datasets.indexing import image_previews, previews, record_table
from datasets.indexing.record_table import RecordTable
from runtime.data.recordio import Writer
from runtime.messages import data as messages
from tests.messages import mentions
from tests.properties import examples
from tests.runtime.data.formats import makers

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
GIF = base64.b64decode("R0lGODlhAQABAAAAACwAAAAAAQABAAA=")


def shown(folder: Path, name: str, rows: list[Any] | None = None) -> RecordTable:
    path, _ = makers.make(name, folder, rows)
    return record_table.first_records(path, name, f"train/{path.name}")


def columns(seen: RecordTable) -> dict[str, str]:
    return {column["name"]: column["type"] for column in seen.columns}


# --- Every format ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "types", "records"),
    [
        ("csv", {"a": "integer or text", "b": "text"}, [["1", 'x "y"\r\nz, w'], ["数字", ""], [" ", "\n"]]),
        ("features", {"features": "float32 15 or float32 1", "label": "integer"}, [[ANY, 3], ["[4]", 6]]),
        (
            *("jsonl", {"a": "list", "value": "integer or text"}),
            [['[1, "数字"]', None], [None, 2], [None, "x\ny"], [None] * 2],
        ),
        (
            *("example", {"x": "float32 2 or number", "y": "integer or int64 2", "数": "bytes or list"}),
            [["[1.5, 2.5]", -1, "a"], [0.5, f"[1, {2**62}]", ANY]],
        ),
        ("idx", {"row": "uint8 3"}, [["[1, 2, 3]"], ["[4, 5, 6]"]]),
        ("image", {"file": "bytes", "class": "text"}, [[ANY, "cat"]]),
        ("list", {"file": "bytes", "label": "integer or text"}, [["one", 7], ["", -1], ["1 B: ff", "cat"]]),
        ("npy", {"row": "int64 3"}, [["[1, 2, 3]"], ["[4, 5, 6]"]]),
        ("npz", {"x": "float64 2", "y": "int64"}, [["[1.5, 2.5]", 1], ["[3.5, 4.5]", 2]]),
        ("recordio", {"value": "bytes"}, [["one"], [""], ["three" * 30]]),
        ("text", {"line": "text"}, [["one"], [""], ["数字 three"]]),
        ("tfrecord", {"value": "bytes"}, [["hello"], [""], [f"300 B: {'00 ' * 16}…"]]),
        (
            *("values", {"value": "integer", "1": "text", "2": "list", "数": "bytes"}),
            [[1, None, None, None], [None, "x", "[2.5, null]", None], [None, None, None, "2 B: 00 01"]],
        ),
        (
            *("webdataset", {"__key__": "text", "png": "bytes", "cls": "bytes"}),
            [["train/数字 1", ANY, "7"], ["train/b", "", "1"]],
        ),
        *(
            pytest.param(
                name, {"a": "integer", "b": "text"}, [[1, "x"], [2, None], [3, "数"]], marks=pytest.mark.formats
            )
            for name in ("parquet", "arrow")
        ),
    ],
)
def test_the_first_records_of_every_format_are_shown(
    tmp_path: Path, name: str, types: dict[str, str], records: list[Any]
) -> None:
    seen = shown(tmp_path, name)
    assert (columns(seen), seen.records, seen.why, seen.more_columns) == (types, records, "", 0)


def test_no_format_is_without_a_vector() -> None:
    marks = test_the_first_records_of_every_format_are_shown.pytestmark  # type: ignore[attr-defined]
    vectors = next(mark.args[1] for mark in marks if mark.name == "parametrize")
    assert {getattr(vector, "values", vector)[0] for vector in vectors} == set(makers.FILES)


def test_the_types_of_csv_columns_come_from_their_cells(tmp_path: Path) -> None:
    rows = [{"n": "1", "x": "1.5", "e": "", "m": "7"}, {"n": "-2", "x": "3", "e": " ", "m": "y"}]
    assert columns(shown(tmp_path, "csv", rows)) == {
        "n": "integer",
        "x": "number",
        "e": "empty",
        "m": "integer or text",
    }


def test_numbers_that_no_browser_can_represent_are_text(tmp_path: Path) -> None:
    seen = shown(tmp_path, "npz", [{"x": [np.nan], "y": 2**60}, {"x": [np.inf], "y": -(2**60)}])
    assert seen.records == [["[nan]", str(2**60)], ["[inf]", str(-(2**60))]]
    assert shown(tmp_path, "jsonl", [float("nan"), float("inf")]).records == [["nan"], ["inf"]]


def test_long_values_are_cut(tmp_path: Path) -> None:
    wide = shown(tmp_path, "jsonl", [{f"c{number}": "x" * 5000 for number in range(60)}])
    assert (len(wide.columns), wide.more_columns) == (record_table.COLUMNS, 10)
    assert {len(cell) for cell in wide.records[0]} == {record_table.TEXT_LIMIT}
    assert len(shown(tmp_path, "text", ["x"] * 1000).records) == record_table.RECORDS


# --- Pictures --------------------------------------------------------------------------------------------------------
def test_the_pictures_of_an_image_folder_are_shown_as_they_are(tmp_path: Path) -> None:
    seen = shown(tmp_path, "list", [(PNG, 3), (b"no picture", 4), (GIF, 5)])
    assert [(one["record"], one["column"], one["width"], one["height"]) for one in seen.pictures] == [
        (0, 0, 1, 1),
        (2, 0, 1, 1),
    ]
    assert base64.b64decode(seen.pictures[0]["source"].partition(",")[2]) == PNG


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ((28, 30), (30, 28)),
        ((8, 9, 3), (9, 8)),
        ((3, 8, 9), (9, 8)),
        ((1, 8, 8), (8, 8)),
        ((8, 8, 4), (8, 8)),
        ((64,), (8, 8)),
    ],
)
def test_arrays_that_are_pictures_are_drawn(shape: tuple[int, ...], size: tuple[int, int]) -> None:
    levels = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    drawn = image_previews.of_array(levels)
    assert drawn is not None and (drawn.width, drawn.height) == size
    assert len(_unpacked(drawn.source)) == size[1] * (1 + size[0] * (levels.size // (size[0] * size[1])))


def _unpacked(source: str) -> bytes:
    """Return the rows of pixels of a drawn picture, each without its filter byte."""
    data, at = base64.b64decode(source.partition(",")[2]), 8
    while data[at + 4 : at + 8] != b"IDAT":
        at += 12 + struct.unpack_from(">I", data, at)[0]
    return zlib.decompress(data[at + 8 : at + 8 + struct.unpack_from(">I", data, at)[0]])


def test_numbers_are_scaled_from_black_to_white() -> None:
    drawn = image_previews.of_array(np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8))
    assert drawn is not None
    rows = _unpacked(drawn.source)
    assert (rows[1], rows[-1]) == (0, 255)
    strange = np.full((8, 8), np.nan)
    strange[0, 0], strange[0, 1] = np.finfo(float).max, np.finfo(float).min
    assert image_previews.of_array(strange) is not None


@pytest.mark.parametrize("shape", [(), (0,), (10,), (7, 7), (8, 600), (2, 8, 8), (8, 8, 8), (1, 1, 8, 8)])
def test_other_arrays_are_no_pictures(shape: tuple[int, ...]) -> None:
    assert image_previews.of_array(np.zeros(shape)) is None


def jpeg(width: int, height: int) -> bytes:
    comment = b"\xff\xfe" + struct.pack(">H", 6) + b"word"
    return b"\xff\xd8" + comment + b"\xff\xc0" + struct.pack(">HBHHB", 11, 8, height, width, 1) + b"\x01\x11\x00"


def test_the_sizes_of_pictures_are_read_from_their_heads() -> None:
    webp = b"RIFF\x00\x00\x00\x00WEBPVP8X" + bytes(8) + (29).to_bytes(3, "little") + (19).to_bytes(3, "little")
    sizes = [image_previews.of_file(data) for data in (PNG, GIF, jpeg(30, 20), webp)]
    assert [(found.width, found.height) for found in sizes if found] == [(1, 1), (1, 1), (30, 20), (30, 20)]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        PNG[:20],
        PNG[:16] + struct.pack(">II", 50_000, 50_000) + PNG[24:],  # a few bytes, and gigabytes when drawn
        jpeg(0, 9),
        b"\xff\xd8\xff\xfe\x00\x00" * 9,
        b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>",
        PNG + bytes(image_previews.MOST_BYTES),
    ],
    ids=["nothing", "cut", "bomb", "flat", "loop", "svg", "long"],
)
def test_files_unsuitable_for_a_browser_are_not_pictures(data: bytes) -> None:
    assert image_previews.of_file(data) is None


def test_the_number_of_pictures_is_limited(tmp_path: Path) -> None:
    seen = shown(tmp_path, "npy", [[[[0] * 8] * 8] * 1] * 90)
    assert len(seen.records) == 90 and len(seen.pictures) == record_table.PICTURES


# --- Malicious files -------------------------------------------------------------------------------------------------
def test_an_invalid_record_ends_the_table_with_a_message(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text('{"a": 1}\n{"a"\n')
    seen = record_table.first_records(tmp_path / "data.jsonl", "jsonl", "train/data.jsonl")
    assert seen.records == [[1]]
    assert mentions(seen.why, messages.JSON_LINE_INVALID, where="train/data.jsonl, chunk at 0, record 1")


def test_a_record_that_is_nested_too_deeply_is_refused_with_a_message(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text("[" * 100_000 + "\n")
    assert mentions(record_table.first_records(tmp_path / "data.jsonl", "jsonl", "a").why, messages.JSON_LINE_INVALID)


def test_objects_are_not_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    seen = record_table.first_records(tmp_path / "a.npy", "npy", "a.npy")
    assert (seen.records, seen.why) == (
        [],
        messages.ARRAY_OF_OBJECTS(where="a.npy"),
    )


def test_a_chunk_that_is_too_long_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_table, "MOST_BYTES", 100)
    assert mentions(shown(tmp_path, "npy", [[7] * 100]).why, datasets_messages.PREVIEW_CHUNK_TOO_LARGE)


@pytest.mark.invariant("A preview of a file that expands takes no memory of the worker.")
def test_a_file_that_swells_is_read_apart_and_ended(tmp_path: Path) -> None:
    """Some kilobytes that expand to many megabytes of zeros."""
    path, size = tmp_path / "bomb.npz", 80 << 20
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("x.npy", "w") as member:
        header = {"descr": "|u1", "fortran_order": False, "shape": (size, 1)}
        np.lib.format.write_array_header_1_0(member, header)
        for _ in range(size >> 20):
            member.write(bytes(1 << 20))
    assert path.stat().st_size < 1 << 20 and record_table.is_compressed(path, "npz")
    seen = previews.in_child_process(path, "npz", "bomb.npz", memory=120 << 20)
    assert (
        seen["records"] == []
        and mentions(seen["why"], datasets_messages.PREVIEW_LIMIT_EXCEEDED)
        and "120 MiB" in seen["why"]
    )


def test_harmless_compressed_files_are_shown_like_others(tmp_path: Path) -> None:
    with (tmp_path / "a.recordio").open("wb") as file, Writer(file, compressor="gzip") as writer:
        writer.write(b"one")
    assert record_table.is_compressed(tmp_path / "a.recordio", "recordio")
    assert previews.in_child_process(tmp_path / "a.recordio", "recordio", "a")["records"] == [["one"]]
    path, _ = makers.make("recordio", tmp_path)
    assert not record_table.is_compressed(path, "recordio")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.formats if name in makers.OF_PYARROW else ())
        for name in sorted(makers.FILES)
    ],
)
@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(noise=st.binary(max_size=200), at=st.floats(0, 1), keep=st.booleans())
def test_any_file_is_shown_or_refused_with_a_message(
    tmp_path: Path, name: str, noise: bytes, at: float, keep: bool
) -> None:
    path, _ = makers.make(name, tmp_path)
    content = path.read_bytes()
    place = int(at * len(content))
    path.write_bytes(content[:place] + noise + (content[place + len(noise) :] if keep else b""))
    seen = record_table.first_records(path, name, "a file")
    json.dumps(asdict(seen), allow_nan=False)
    assert seen.records or seen.why or not seen.columns
    assert str(tmp_path) not in seen.why
