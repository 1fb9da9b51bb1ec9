"""Files packed with gzip: the same records, in pieces, in bounded memory.

Damage and bombs are refused with a message.
"""

from __future__ import annotations

import gzip
import random
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtime.data.errors import FormatError
from runtime.data.formats import gzipped, registry
from runtime.data.span import CHUNK_BYTES
from runtime.messages import data as messages
from tests.messages import pattern
from tests.runtime.data.formats.makers import FILES, chunks, make, plain, read
from tests.runtime.data.formats.test_counts import check

PACKED = sorted(name for name in FILES if registry.named(name).packable)


def pack(path: Path) -> Path:
    """Pack the file and remove the original."""
    packed = path.with_name(path.name + ".gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    return packed


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set many points in files of a few hundred bytes."""
    monkeypatch.setattr(gzipped, "_INPUT_BYTES", 7)
    monkeypatch.setattr(gzipped, "_OUTPUT_BYTES", 5)
    monkeypatch.setattr(gzipped, "_BETWEEN_POINTS", 16)
    monkeypatch.setattr(gzipped, "_MOST_POINTS", 8)
    gzipped._stream.cache_clear()


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("chunk_bytes", [1, 100, CHUNK_BYTES])
def test_records_are_those_of_the_file_that_is_packed(name: str, chunk_bytes: int, tmp_path: Path) -> None:
    path, rows = make(name, tmp_path)
    plain_spans = chunks(path, name, chunk_bytes)
    packed = pack(path)
    assert registry.detect(packed).name == name or name == "example"
    assert [plain(record) for record in read(packed, name, chunk_bytes)] == [plain(row) for row in rows]
    assert [span[:3] for span in chunks(packed, name, chunk_bytes)] == [span[:3] for span in plain_spans]
    assert registry.unpacked_size(packed, registry.named(name)) == len(gzip.decompress(packed.read_bytes()))


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("name", PACKED)
def test_chunks_are_read_in_any_order(name: str, tmp_path: Path) -> None:
    packed = pack(make(name, tmp_path)[0])
    format_ = registry.named(name)
    spans = chunks(packed, name, 1)
    expected = {span: repr(list(map(plain, format_.read(packed, span)))) for span in spans}
    shuffled = spans * 3
    random.Random(0).shuffle(shuffled)
    gzipped._stream.cache_clear()
    assert all(repr(list(map(plain, format_.read(packed, span)))) == expected[span] for span in shuffled)


def test_members_one_after_the_other_and_zeros_behind_them_are_one_file(tmp_path: Path) -> None:
    """As cat and bgzip write them, and as tapes fill them up."""
    (tmp_path / "data.txt.gz").write_bytes(
        gzip.compress(b"one\ntw") + gzip.compress(b"") + gzip.compress(b"o\n") + bytes(9)
    )
    for chunk_bytes in (1, CHUNK_BYTES):
        assert read(tmp_path / "data.txt.gz", None, chunk_bytes) == ["one", "two"]


@pytest.mark.parametrize(
    ("name", "format_"),
    [("a.csv.gz", "csv"), ("a.TSV.GZ", "csv"), ("a.jsonl.gzip", "jsonl"), ("a.tfrecord-00001-of-00009.gz", "tfrecord"),
     ("a.tfrecord.gz-00001-of-00009", "tfrecord"), ("a.tgz", "webdataset")],
)  # fmt: skip
def test_the_name_without_its_suffix_determines_the_format(name: str, format_: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(gzip.compress(b""))
    assert registry.detect(tmp_path / name).name == format_


@pytest.mark.parametrize("name", PACKED)
def test_damage_is_found_when_the_file_is_listed(name: str, tmp_path: Path) -> None:
    packed = pack(make(name, tmp_path)[0])
    whole = packed.read_bytes()
    for content, why in (
        (whole[:-9], pattern(messages.GZIP_TRUNCATED)),
        (whole[:-6] + b"xx" + whole[-4:], pattern(messages.GZIP_DAMAGED)),
        (whole + b"more", pattern(messages.GZIP_DAMAGED)),
    ):
        packed.write_bytes(content)
        with pytest.raises(FormatError, match=why):
            chunks(packed, name)


@pytest.mark.usefixtures("small_steps")
@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data(), chunk_bytes=st.sampled_from([1, 50, CHUNK_BYTES]), name=st.sampled_from(PACKED))
def test_any_packed_content_has_as_many_records_as_its_index_counts(
    data: st.DataObject, chunk_bytes: int, name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path, _rows = make(name, tmp_path_factory.mktemp("packed"))
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
    packed = bytearray(gzip.compress(content))
    if data.draw(st.booleans()):
        packed[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(packed)
    check(path, name, chunk_bytes)


@pytest.mark.invariant("A decompression bomb is refused in bounded memory.")
def test_a_bomb_is_refused_in_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """64 MB of empty lines in 64 kB, with a limit of one."""
    monkeypatch.setattr(gzipped, "FREE_BYTES", 1 << 20)
    (tmp_path / "data.txt.gz").write_bytes(gzip.compress(b"\n" * (64 << 20), 1))
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match=pattern(messages.GZIP_RATIO_TOO_HIGH)):
            chunks(tmp_path / "data.txt.gz", None, 1 << 16)
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.invariant("A gzip file is read in the memory of a chunk.")
def test_a_large_file_is_read_in_the_memory_of_a_chunk(tmp_path: Path) -> None:
    line = b"x" * 999 + b"\n"
    with gzip.open(tmp_path / "data.txt.gz", "wb", compresslevel=1) as file:
        for _ in range(64):
            file.write(line * 1000)
    packed = registry.detect(tmp_path / "data.txt.gz")
    tracemalloc.start()
    try:
        records = sum(
            1
            for span in packed.index(tmp_path / "data.txt.gz", 1 << 20)
            for _ in packed.read(tmp_path / "data.txt.gz", span)
        )
        taken = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert records == 64_000
    assert taken < 24 << 20


def test_a_tensorflow_record_whose_length_resembles_gzip_is_not_gzip(tmp_path: Path) -> None:
    path, rows = make("tfrecord", tmp_path, [bytes(0x00088B1F)])
    assert path.read_bytes().startswith(gzipped.MAGIC)
    assert registry.detect(path).name == "tfrecord"
    found: list[Any] = read(path)
    assert found == rows
