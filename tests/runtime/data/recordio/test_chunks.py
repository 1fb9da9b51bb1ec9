"""Chunks, byte for byte, and the effect of damaged ones."""

from __future__ import annotations

import gzip
import io
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.data import recordio
from runtime.data.recordio import GZIP, NONE, Header, RecordIOError, Span, Writer, compression
from runtime.errors import UsageError
from runtime.messages import data as messages
from tests.messages import either, pattern


def written(records, **options) -> bytes:
    file = io.BytesIO()
    with Writer(file, **options) as writer:
        for record in records:
            writer.write(record)
    return file.getvalue()


@pytest.fixture
def saved(tmp_path):
    def save(content: bytes):
        path = tmp_path / "file.recordio"
        path.write_bytes(content)
        return path

    return save


def read_all(path) -> list[bytes]:
    return [record for span in recordio.scan(path) for record in recordio.read(path, span.offset, span.length)]


PLAIN = bytes.fromhex(
    "04030201 873a6795 00000000 11000000 02000000 05000000 3132333435 04000000 31323334"
    "04030201 9a5680f2 00000000 06000000 01000000 02000000 3132"
)
VECTORS = {
    "one empty record": ([b""], "04030201 1cdf4421 00000000 04000000 01000000 00000000"),
    "Hello World": (
        [b"Hello", b"World!"],
        "04030201 837e4759 00000000 13000000 02000000 05000000 48656c6c6f 06000000 576f726c6421",
    ),
    "nothing": ([], ""),
}


def test_a_limit_of_ten_bytes_makes_two_chunks_of_the_known_bytes(saved):
    file = io.BytesIO()
    writer = Writer(file, max_chunk_bytes=10)
    assert [writer.write(record) for record in (b"12345", b"1234", b"12")] == [5, 4, 2]
    writer.close()
    assert file.getvalue() == PLAIN
    assert recordio.scan(saved(PLAIN)) == (Span(0, 37, 2, 0x95673A87), Span(37, 26, 1, 0xF280569A))


def test_writing_after_close_is_refused_and_writes_nothing():
    file = io.BytesIO()
    writer = Writer(file)
    writer.close()
    with pytest.raises(RecordIOError, match=pattern(messages.WRITER_CLOSED)):
        writer.write(b"late")
    assert file.getvalue() == b""


@pytest.mark.parametrize("name", VECTORS)
def test_known_chunks(name, saved):
    records, expected = VECTORS[name]
    content = written(records)
    assert content == bytes.fromhex(expected)
    assert read_all(saved(content)) == records


def test_the_header_of_the_vectors_round_trips():
    header = Header(123, 456, 789, 0)
    assert header.pack().hex() == "040302017b000000c80100001503000000000000"
    assert Header.unpack(header.pack()) == header


def test_gzip_chunks_are_unpacked_by_gzip():
    content = written([b"Hello", b"World!"], compressor="gzip")
    header = Header.unpack(content[:20])
    assert (header.compressor, header.records, header.crc) == (2, 2, zlib.crc32(content[20:]))
    assert gzip.decompress(content[20:]).hex() == "0500000048656c6c6f06000000576f726c6421"


def test_a_gzip_chunk_of_another_writer_is_read(saved):
    stored = gzip.compress(bytes.fromhex("0500000048656c6c6f"), mtime=1_500_000_000)
    chunk = Header(zlib.crc32(stored), GZIP, len(stored), 1).pack() + stored
    assert read_all(saved(chunk)) == [b"Hello"]


def test_the_same_records_give_the_same_gzip_bytes():
    assert written([b"a" * 100], compressor="gzip") == written([b"a" * 100], compressor="gzip")


def test_a_limit_of_zero_makes_one_chunk_a_record(saved):
    records = [bytes(length) for length in range(200)]
    path = saved(written(records, max_chunk_bytes=0))
    spans = recordio.scan(path)
    assert [span.records for span in spans] == [1] * 200
    assert read_all(path) == records


SNAPPY = bytes.fromhex(
    "04030201 0d6cdc08 01000000 1b000000 01000000 ff060000734e61507059 010d0000 56966fac 0500000048656c6c6f"
)


SNAPPY_OF_TWO = bytes.fromhex(
    "04030201 5c2b1953 01000000 25000000 02000000 ff060000734e61507059 01170000 b2db730a"
    "0500000048656c6c6f06000000576f726c6421"
)


@pytest.mark.parametrize(("records", "expected"), [([b"Hello"], SNAPPY), ([b"Hello", b"World!"], SNAPPY_OF_TWO)])
def test_known_chunks_of_snappy(records, expected, saved):
    assert written(records, compressor="snappy") == expected
    assert read_all(saved(expected)) == records


def test_an_unknown_compressor_error_lists_the_known_ones(saved):
    with pytest.raises(UsageError, match=pattern(messages.COMPRESSOR_INVALID, names="none, snappy, gzip")):
        Writer(io.BytesIO(), compressor="zstd")
    chunk = Header(zlib.crc32(bytes(4)), 7, 4, 1).pack() + bytes(4)
    with pytest.raises(RecordIOError, match=pattern(messages.COMPRESSOR_UNKNOWN)):
        recordio.scan(saved(chunk))


@pytest.mark.parametrize("compressor", ["none", "snappy", "gzip"])
def test_the_order_of_fields_of_the_other_implementation_is_read(saved, compressor):
    ours = written([b"Hello", b"World!"], compressor=compressor)
    header = Header.unpack(ours[:20])
    other = struct.pack("<5I", recordio.MAGIC, header.records, header.crc, header.compressor, header.size) + ours[20:]
    assert read_all(saved(other + other)) == [b"Hello", b"World!"] * 2


@pytest.mark.parametrize("length", range(1, len(PLAIN)))
def test_a_truncated_file_is_reported(saved, length):
    path = saved(PLAIN[:length])
    if length == 37:
        assert read_all(path) == [b"12345", b"1234"]
    else:
        with pytest.raises(RecordIOError, match=either(messages.CHUNK_HEADER_TRUNCATED, messages.CHUNK_TRUNCATED)):
            recordio.scan(path)


def test_a_file_that_shrank_since_it_was_listed_is_reported(saved):
    path = saved(PLAIN)
    last = recordio.scan(path)[-1]
    path.write_bytes(PLAIN[:-1])
    with pytest.raises(RecordIOError, match=pattern(messages.CHUNK_TRUNCATED_SINCE_INDEXED)):
        recordio.read(path, last.offset, last.length)


@pytest.mark.parametrize("compressor", ["snappy", "gzip"])
def test_a_chunk_that_unpacks_to_too_much_is_refused(monkeypatch, compressor):
    content = written([bytes(100_000)], compressor=compressor)
    monkeypatch.setattr(compression, "MAX_PAYLOAD_BYTES", 50_000)
    with pytest.raises(RecordIOError, match=pattern(messages.CHUNK_UNPACKS_TOO_LARGE)):
        recordio.decode_chunk(content)


@pytest.mark.parametrize(
    ("payload", "count"),
    [(b"\x05\0\0\0Hell", 1), (b"\x05\0", 1), (b"\xff\xff\xff\xff", 1), (b"\0\0\0\0", 2), (b"\0\0\0\0", 0)],
)
def test_a_payload_that_does_not_add_up_is_refused(payload, count):
    chunk = Header(zlib.crc32(payload), NONE, len(payload), count).pack() + payload
    with pytest.raises(RecordIOError):
        recordio.decode_chunk(chunk)


@given(
    records=st.lists(st.binary(max_size=40), max_size=20),
    compressor=st.sampled_from(["none", "snappy", "gzip"]),
    limit=st.integers(0, 60),
)
def test_written_records_are_read(records, compressor, limit, tmp_path_factory):
    path = tmp_path_factory.mktemp("recordio") / "file"
    path.write_bytes(written(records, compressor=compressor, max_chunk_bytes=limit))
    assert read_all(path) == records


@given(data=st.data(), compressor=st.sampled_from(["none", "snappy", "gzip"]))
def test_one_wrong_byte_results_in_the_records_or_a_typed_error(data, compressor):
    records = [b"12345", b"", b"1234"]
    content = bytearray(written(records, compressor=compressor))
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(RecordIOError):
        list(recordio.decode_chunk(bytes(content)))


@given(st.binary(max_size=200))
def test_noise_is_refused(noise):
    with pytest.raises(RecordIOError):
        recordio.decode_chunk(noise)
