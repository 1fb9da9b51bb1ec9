"""Snappy's frames: their heads are checked here, their data by the package."""

from __future__ import annotations

import struct
import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.data.checksums import crc32c, masked
from runtime.data.recordio import RecordIOError, snappy
from runtime.errors import UsageError
from runtime.messages import data as messages
from tests.messages import pattern

MOST = 1 << 20


def stream(*frames: bytes) -> bytes:
    return snappy.STREAM_IDENTIFIER + b"".join(frames)


def frame(kind: int, body: bytes) -> bytes:
    return bytes([kind]) + len(body).to_bytes(3, "little") + body


def packed(data: bytes, content: bytes) -> bytes:
    """Return a compressed frame of ``content`` that claims to hold ``data``."""
    return frame(0, struct.pack("<I", masked(crc32c(data))) + content)


def test_a_short_text_is_stored_as_it_is():
    assert snappy.compress(b"\x05\0\0\0Hello").hex() == "ff060000734e61507059010d000056966fac0500000048656c6c6f"


@pytest.mark.parametrize("data", [b"", b"a" * 300_000, bytes(range(256)) * 600, b"ab" * 5, b"abcabcd" * 30_000])
def test_compressed_data_is_unpacked(data):
    stored = snappy.compress(data)
    assert snappy.decompress(stored, MOST) == data
    assert len(stored) <= 10 + len(data) + 8 * (len(data) // 65_536 + 1)


def test_text_that_repeats_becomes_shorter():
    assert len(snappy.compress(b"the same words " * 2_000)) < 3_000


@given(st.lists(st.sampled_from([b"a", b"b", b"word ", b"\0" * 70, b"longer than sixty bytes " * 4]), max_size=60))
def test_any_data_comes_back(parts):
    data = b"".join(parts)
    assert snappy.decompress(snappy.compress(data), MOST) == data


# Forms that the format's description allows, made by hand: literals of each length form, copies with offsets of one,
# two and four bytes, and a copy that repeats itself.
FORMS = {
    "literal": (b"abc", b"\x03\x08abc"),
    "long literal": (b"x" * 61, b"\x3d\xf0\x3c" + b"x" * 61),
    "longer literal": (b"y" * 300, b"\xac\x02\xf4\x2b\x01" + b"y" * 300),
    "copy with one byte": (b"abcdabcd", b"\x08\x0cabcd\x01\x04"),
    "copy with two bytes": (b"abcdabcd", b"\x08\x0cabcd\x0e\x04\x00"),
    "copy with four bytes": (b"abcdabcd", b"\x08\x0cabcd\x0f\x04\x00\x00\x00"),
    "copy of itself": (b"ababababab", b"\x0a\x04ab\x11\x02"),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_compressed_data_is_read(form):
    data, content = FORMS[form]
    assert snappy.decompress(stream(packed(data, content)), MOST) == data


def test_padding_and_skippable_frames_are_skipped():
    data = stream(frame(0xFE, bytes(9)), frame(0x80, b"?"), snappy.STREAM_IDENTIFIER, packed(b"abc", b"\x03\x08abc"))
    assert snappy.decompress(data, MOST) == b"abc"


@pytest.mark.parametrize("kind", [0xFE, 0x80, 0xFD])
def test_a_skipped_frame_may_have_any_length(kind):
    assert snappy.decompress(stream(frame(kind, bytes(1 << 20)), packed(b"abc", b"\x03\x08abc")), MOST) == b"abc"


@pytest.mark.parametrize(
    ("stored", "why"),
    [
        (b"", "does not begin"),
        (snappy.STREAM_IDENTIFIER[:-1], "does not begin"),
        (stream(b"\x01\xff\xff\xff"), "ends inside a frame"),
        (stream(b"\x01"), "ends inside a frame|too short"),
        (stream(frame(0x02, b"abcd")), "unknown type 02"),
        (stream(frame(0x01, b"abc")), "too short"),
        (stream(frame(0x00, b"abcd")), "no length"),
        (stream(frame(0x00, b"abcd\xff\xff\xff\xff\x0f")), "too long"),
        (stream(frame(0xFF, b"other!")), "begins wrongly"),
        (stream(frame(0x01, bytes(4) + b"abc")), "checksum"),
        (stream(packed(b"abc", b"\x03\x08ab")), "expected literal"),
        (stream(packed(b"abc", b"\x04\x08abc")), "expected 4 decompressed bytes but got 3"),
        (stream(packed(b"abc", b"\x02\x08abc")), "expected literal"),
        (stream(packed(b"abc", b"\x07\x08abc\x01\x05")), "valid offset"),
        (stream(packed(b"abc", b"\x07\x08abc\x01\x00")), "valid offset"),
        (stream(packed(b"abc", b"\x07\x08abc\x0e")), "expected copy"),
    ],
)
def test_damage_is_named(stored, why):
    with pytest.raises(RecordIOError, match=why):
        snappy.decompress(stored, MOST)


def test_oversized_data_takes_no_memory():
    bomb = stream(*[frame(0, bytes(4) + b"\x80\x80\x04" + b"\0")] * 5_000)
    tracemalloc.start()
    try:
        with pytest.raises(RecordIOError, match=pattern(messages.CHUNK_UNPACKS_TOO_LARGE, most=1048576)):
            snappy.decompress(bomb, MOST)
        assert tracemalloc.get_traced_memory()[1] < 8 * MOST
    finally:
        tracemalloc.stop()


@given(st.binary(max_size=60))
def test_noise_after_the_beginning_is_data_or_damage(noise):
    try:
        assert len(snappy.decompress(stream(noise), MOST)) <= MOST
    except RecordIOError:
        return


@pytest.mark.parametrize("seed", range(3))
def test_numbers_of_many_frames_come_back(seed):
    data = np.random.default_rng(seed).integers(0, 5, 150_000, np.uint8).tobytes()
    assert snappy.decompress(snappy.compress(data), MOST) == data


def test_a_missing_package_is_named(monkeypatch):
    stored = snappy.compress(b"abc")
    monkeypatch.setattr(snappy, "_cramjam", None)
    monkeypatch.setitem(sys.modules, "cramjam", None)
    with pytest.raises(UsageError, match="requires the package cramjam"):
        snappy.compress(b"abc")
    with pytest.raises(UsageError, match="requires the package cramjam"):
        snappy.decompress(stored, MOST)
