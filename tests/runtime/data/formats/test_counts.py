"""Basis of exactly-once: a chunk has as many records as its index counts, whatever the bytes and the size of chunks.

An invalid file is refused when it is indexed. If checksums cover bytes that an index does not read, or other files are
named (``CHECKED_WHEN_READ``), it may be refused when it is read. A single record that makes no sense is a RecordError
at its place.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from runtime.data.errors import FormatError, RecordError
from runtime.data.formats import registry
from runtime.data.optional_imports import find
from runtime.data.span import CHUNK_BYTES, Span
from tests.runtime.data.formats.makers import FILES, OF_PYARROW, make, plain

CHECKED_WHEN_READ = {"recordio", "values", "features", "tfrecord", "example", "parquet", "arrow", "list"}
# Alphabet of each text format. For the others, bytes are changed in a whole file.
ALPHABETS = {
    "csv": ["a", "数", "1", "1,5", ",", ";", "\t", "|", '"', "#", " ", "\n", "\r\n", "\r", "\ufeff", "\0"],
    "text": ["a", "数", "\n", "\r\n", "\r", "\ufeff", "\0", " "],
    "jsonl": ["1", "{}", "[", '"a"', "\n", "\r\n", "\r", "\ufeff", " ", "\f"],
    "list": ["0.png\t1", "1.png\tx", "\n", "\r\n", "\r", "\ufeff", " "],
}
TRIED = [
    pytest.param(name, marks=pytest.mark.formats) if name in OF_PYARROW else name
    for name in sorted(FILES)
    if name not in OF_PYARROW or find("pyarrow")
]
in_one_folder = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
SIZES = st.sampled_from([1, 2, 7, 50, 300, CHUNK_BYTES])


def index(path: Path, name: str, chunk_bytes: int) -> list[Span] | None:
    """Return the chunks, or None if the file is refused with a message."""
    try:
        return list(registry.named(name).index(path, chunk_bytes))
    except FormatError as refused:
        assert str(refused).endswith(".")
        return None


def read(path: Path, name: str, spans: list[Span]) -> list[Any] | None:
    """Return all records, chunk by chunk. None if reading is refused with a message, which not every format may do."""
    found: list[Any] = []
    try:
        for span in spans:
            before = len(found)
            found += registry.named(name).read(path, span)
            assert len(found) - before == span.records > 0
    except RecordError:
        return None
    except FormatError as refused:
        assert str(refused).endswith(".")
        assert name in CHECKED_WHEN_READ
        return None
    return found


def check(path: Path, name: str, chunk_bytes: int) -> None:
    """Check that the file has the same records however it is cut, as many as the index counts."""
    whole, cut = index(path, name, CHUNK_BYTES), index(path, name, chunk_bytes)
    if whole is None or cut is None:
        return
    assert sum(span.records for span in whole) == sum(span.records for span in cut)
    all_at_once, by_chunks = read(path, name, whole), read(path, name, cut)
    if all_at_once is not None and by_chunks is not None:
        assert repr(list(map(plain, all_at_once))) == repr(list(map(plain, by_chunks)))


@pytest.mark.invariant("A chunk has as many records as its index states, whatever the bytes and the size of chunks.")
@pytest.mark.parametrize("name", TRIED)
def test_damaged_files_have_as_many_records_as_their_index_counts(name: str, tmp_path: Path) -> None:
    path, _rows = make(name, tmp_path)
    content = path.read_bytes()

    @in_one_folder
    @given(data=st.data(), chunk_bytes=SIZES)
    def damaged(data: st.DataObject, chunk_bytes: int) -> None:
        changed = bytearray(content)
        for _change in range(data.draw(st.integers(0, 3))):
            at = data.draw(st.integers(0, len(changed) - 1))
            changed[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
        begin, end = sorted((data.draw(st.integers(0, len(changed))), data.draw(st.integers(0, len(changed)))))
        kept = changed[begin:end] if data.draw(st.booleans()) else changed + changed[begin:end]
        path.write_bytes(kept)
        check(path, name, chunk_bytes)

    damaged()


@pytest.mark.invariant("A chunk has as many records as its index states, whatever the bytes and the size of chunks.")
@pytest.mark.parametrize("name", sorted(ALPHABETS))
def test_any_text_has_as_many_records_as_its_index_counts(name: str, tmp_path: Path) -> None:
    path, _rows = make(name, tmp_path)

    @settings(in_one_folder, max_examples=400)
    @given(text=st.lists(st.sampled_from(ALPHABETS[name]), max_size=24).map("".join), chunk_bytes=SIZES)
    @example(text="\r\nz, w", chunk_bytes=1)  # the header is not in the first chunk
    @example(text='# "\na,b\n1,2\n', chunk_bytes=1)  # a quote in a comment opens no cell
    def any_text(text: str, chunk_bytes: int) -> None:
        path.write_bytes(text.encode())
        check(path, name, chunk_bytes)

    any_text()


@pytest.mark.invariant("A chunk has as many records as its index states, whatever the bytes and the size of chunks.")
@pytest.mark.parametrize("name", TRIED)
def test_noise_has_as_many_records_as_its_index_counts(name: str, tmp_path: Path) -> None:
    path, _rows = make(name, tmp_path)

    @in_one_folder
    @given(noise=st.binary(max_size=400), chunk_bytes=SIZES)
    def noise_is_read_or_refused(noise: bytes, chunk_bytes: int) -> None:
        path.write_bytes(noise)
        check(path, name, chunk_bytes)

    noise_is_read_or_refused()


def test_a_header_after_empty_lines_is_no_record_in_any_chunk(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes(b"\r\nz, w\r\n1,2\r\n")
    for chunk_bytes in (1, CHUNK_BYTES):
        spans = index(path, "csv", chunk_bytes)
        assert spans is not None
        assert [span.records for span in spans] == [1]
        assert read(path, "csv", spans) == [{"z": "1", " w": "2"}]
