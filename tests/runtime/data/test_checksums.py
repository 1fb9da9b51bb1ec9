"""CRC-32C by known values, and CRC-32 by each implementation."""

from __future__ import annotations

import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.data import catalogue, checksums
from runtime.data.checksums import crc32, crc32c, crc32c_of_each, masked
from runtime.errors import UsageError

# RFC 3720, appendix B.4, and the check value of the catalogue of CRCs.
KNOWN = {
    bytes(32): 0x8A9136AA,
    b"\xff" * 32: 0x62A8AB43,
    bytes(range(32)): 0x46DD794E,
    bytes(range(31, -1, -1)): 0x113FDB5C,
    b"123456789": 0xE3069283,
    b"": 0,
}


@pytest.mark.parametrize("data", KNOWN, ids=len)
def test_known_values(data):
    assert crc32c(data) == KNOWN[data]
    assert crc32c_of_each(data, [0, 0], [len(data), 0]) == [KNOWN[data], 0]


def test_long_data_is_the_same_in_one_piece_and_many():
    data = bytes(range(251)) * 400
    assert [crc32c(data)] == crc32c_of_each(data, [0], [len(data)])


def test_the_mask_is_that_of_tfrecord():
    assert masked(crc32c(b"hello")) == 0x191C1FBB


@given(st.binary(max_size=3000), st.data())
def test_pieces_have_the_checksums_of_their_bytes(data, draw):
    places = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=8)))
    begins, ends = places[:-1], places[1:]
    assert crc32c_of_each(data, begins, ends) == [crc32c(data[a:b]) for a, b in zip(begins, ends, strict=True)]


@pytest.mark.parametrize("of", [bytes, bytearray, memoryview])
def test_any_buffer_has_a_checksum(of):
    data = of(b"123456789")
    assert [crc32c(data)] == crc32c_of_each(data, [0], [9]) == [0xE3069283]


class TestWithoutThePackage:
    @pytest.fixture(autouse=True)
    def without(self, monkeypatch):
        monkeypatch.setattr(checksums, "_google", None)
        monkeypatch.setitem(sys.modules, "google_crc32c", None)

    def test_a_checksum_names_it(self):
        with pytest.raises(UsageError, match="requires the package google-crc32c"):
            crc32c(b"")
        with pytest.raises(UsageError, match="requires the package google-crc32c"):
            crc32c_of_each(b"", [], [])

    def test_other_formats_are_still_recognised(self, tmp_path):
        (tmp_path / "a.jsonl").write_text('{"a": 1, "b": 2}\n')
        (span,) = catalogue.chunks(catalogue.locate(str(tmp_path / "a.jsonl")))
        assert list(catalogue.read_chunk(span)) == [{"a": 1, "b": 2}]

    def test_a_tfrecord_names_it(self, tmp_path):
        (tmp_path / "a.tfrecord").write_bytes(bytes.fromhex("0500000000000000eab2043e68656c6c6fbb1f1c19"))
        with pytest.raises(UsageError, match="requires the package google-crc32c"):
            catalogue.chunks(catalogue.locate(str(tmp_path / "a.tfrecord")))


@given(st.binary(max_size=200))
def test_crc_32_is_zlibs(data):
    assert crc32(data) == zlib.crc32(data)
