"""Reading RecordIO by number, without copies, and with damage."""

from __future__ import annotations

import io
import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.data.recordio import Header, Reader, RecordIOError, Writer
from runtime.messages import data as messages
from tests.messages import either, pattern

WORDS = [b"alpha", b"", b"gamma", b"delta", b"epsilon", b"zeta", b"eta"]


def made(records=WORDS, compressor="none", max_chunk_bytes=10) -> bytes:
    file = io.BytesIO()
    with Writer(file, compressor, max_chunk_bytes) as writer:
        for record in records:
            writer.write(record)
    return file.getvalue()


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "words.recordio"
    path.write_bytes(made())
    return path


def test_a_reader_yields_all_records_in_order_on_every_iteration(path):
    with Reader(path) as reader:
        assert list(reader) == WORDS
        assert list(reader) == WORDS
        assert len(reader) == len(WORDS)


def test_a_reader_accepts_an_open_file(path):
    with path.open("rb") as file:
        assert list(Reader(file)) == WORDS
        assert not file.closed
    assert list(Reader(io.BytesIO(path.read_bytes()))) == WORDS


def test_a_writer_s_buffered_records_are_seen_by_a_reader_of_the_same_file(tmp_path):
    with (tmp_path / "both").open("w+b") as file:
        file.write(made([b"one"]))
        assert list(Reader(file)) == [b"one"]


def test_chunks_have_their_offsets(path):
    with Reader(path) as reader:
        assert [(chunk.offset, chunk.records) for chunk in reader.chunks] == [(0, 3), (42, 1), (71, 1), (102, 2)]
        assert sum(chunk.length for chunk in reader.chunks) == path.stat().st_size


def test_an_empty_file_has_no_chunks_and_no_records(tmp_path):
    (tmp_path / "empty").touch()
    with Reader(tmp_path / "empty") as reader:
        assert (reader.chunks, list(reader), len(reader), reader.locate(0)) == ((), [], 0, (-1, -1))


def test_views_are_the_records_without_a_copy(path):
    with Reader(path) as reader:
        views = list(reader.views())
    assert views == WORDS
    assert all(isinstance(view, memoryview) for view in views)


@pytest.mark.parametrize(
    ("first", "count", "expected"),
    [(0, -1, WORDS), (-5, 2, WORDS[:2]), (2, 3, WORDS[2:5]), (6, 9, WORDS[6:]), (7, 1, []), (99, -1, []), (3, 0, [])],
)
def test_a_range_begins_and_ends_where_it_should(path, first, count, expected):
    with Reader(path) as reader:
        assert list(reader.range(first, count)) == expected


def test_a_range_reads_only_its_chunks(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with Reader(path) as reader:
        assert list(reader.range(0, 5)) == WORDS[:5]


@pytest.mark.parametrize(
    ("record", "place"), [(0, (0, 0)), (2, (0, 2)), (3, (1, 0)), (6, (3, 1)), (7, (-1, -1)), (-1, (-1, -1))]
)
def test_a_record_is_located(path, record, place):
    with Reader(path) as reader:
        assert reader.locate(record) == place


def test_a_thousand_records_of_growing_length_are_each_in_their_chunk():
    reader = Reader(io.BytesIO(made([bytes(length) for length in range(1000)], max_chunk_bytes=0)))
    assert len(reader.chunks) == 1000
    assert [reader.locate(number) for number in (0, 500, 999)] == [(0, 0), (500, 0), (999, 0)]
    assert [len(record) for record in reader] == list(range(1000))


# --- Damage ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("cut", [1, 5, 20, 33])
def test_a_bad_tail_is_an_error_unless_it_is_to_be_passed_over(path, cut):
    path.write_bytes(path.read_bytes()[:-cut])
    with (
        Reader(path) as reader,
        pytest.raises(RecordIOError, match=either(messages.CHUNK_HEADER_TRUNCATED, messages.CHUNK_TRUNCATED)),
    ):
        list(reader)
    with Reader(path, recover=True) as reader:
        assert list(reader) == WORDS[:5]
        assert [(damage.offset, damage.end) for damage in reader.damage] == (
            [(102, path.stat().st_size)] if cut < 39 else []
        )


@pytest.mark.parametrize("place", range(42, 71))
def test_after_any_wrong_byte_the_other_chunks_are_found_again(path, place):
    """The second chunk lies from 42 to 71."""
    content = bytearray(path.read_bytes())
    content[place] ^= 0x55
    with Reader(io.BytesIO(bytes(content)), recover=True) as reader:
        found = list(reader)
        if content[58:62] == struct.pack("<I", 1):  # the number of records has no checksum
            assert found == WORDS[:3] + WORDS[4:]
        assert [damage.offset for damage in reader.damage] == [42]


def test_strange_bytes_before_between_and_after_chunks_are_passed_over():
    first, second = made([b"one"]), made([b"two"])
    magic = struct.pack("<I", 0x01020304)
    content = b"noise" + first + magic * 7 + second + b"\x04\x03\x02"
    with Reader(io.BytesIO(content), recover=True) as reader:
        assert list(reader) == [b"one", b"two"]
        assert [damage.end - damage.offset for damage in reader.damage] == [5, 28, 3]


def test_the_next_chunk_is_found_however_far_it_is():
    """The magic lies across the border of two search windows."""
    for noise in ((1 << 20) - 2, (1 << 20) - 1, (1 << 20), (1 << 20) + 1):
        with Reader(io.BytesIO(bytes(noise) + made([b"one"])), recover=True) as reader:
            assert list(reader) == [b"one"]


@pytest.mark.parametrize("size", [0xFFFFFFFF, 0xF0000000, 600 << 20])
def test_a_header_that_announces_gigabytes_allocates_none(tmp_path, size):
    """In a file that is as long as that, too: most of it is a hole."""
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.write(Header(0, 0, size, 1).pack())
        file.truncate(5 << 30)
    tracemalloc.start()
    try:
        with Reader(path) as reader, pytest.raises(RecordIOError, match=pattern(messages.CHUNK_TOO_LARGE)):
            list(reader)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_header_that_announces_many_records_allocates_none():
    chunk = Header(0, 0, 0, 0xFFFFFFFF).pack()
    with pytest.raises(RecordIOError):
        list(Reader(io.BytesIO(chunk)))


def test_a_file_that_shrinks_while_it_is_read_is_reported(path):
    with Reader(path) as reader:
        assert len(reader) == 7
        path.write_bytes(path.read_bytes()[:100])
        with pytest.raises(RecordIOError, match=pattern(messages.CHUNK_TRUNCATED_SINCE_INDEXED)):
            list(reader)


@given(data=st.data())
def test_a_damaged_file_returns_written_records_or_a_format_error(data):
    content = bytearray(made(compressor=data.draw(st.sampled_from(["none", "snappy", "gzip"]))))
    for _change in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] ^= data.draw(st.integers(1, 255))
    del content[data.draw(st.integers(len(content) // 2, len(content))) :]
    with Reader(io.BytesIO(bytes(content)), recover=True) as reader:
        assert set(reader) <= set(WORDS)
    try:
        assert set(Reader(io.BytesIO(bytes(content)))) <= set(WORDS)
    except RecordIOError:
        return


@given(st.binary(max_size=120), st.booleans())
def test_noise_is_an_error_of_the_format_or_passed_over(noise, begins_well):
    content = b"\x04\x03\x02\x01" * begins_well + noise
    assert list(Reader(io.BytesIO(content), recover=True)) == []
    if content:
        with pytest.raises(RecordIOError):
            list(Reader(io.BytesIO(content)))
