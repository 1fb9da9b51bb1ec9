"""CRC-32C by known values, with and without the package, and CRC-32 by each implementation."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.data import checksums
from runtime.data.checksums import crc32, crc32c, crc32c_of_each, masked

# RFC 3720, appendix B.4, and the check value of the catalogue of CRCs.
KNOWN = {
    bytes(32): 0x8A9136AA,
    b"\xff" * 32: 0x62A8AB43,
    bytes(range(32)): 0x46DD794E,
    bytes(range(31, -1, -1)): 0x113FDB5C,
    b"123456789": 0xE3069283,
    b"": 0,
}


@pytest.fixture(params=["NumPy", pytest.param("package", marks=pytest.mark.formats)])
def way(request, monkeypatch):
    if request.param == "NumPy":
        monkeypatch.setattr(checksums, "_google", None)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("data", KNOWN, ids=len)
def test_known_values(data):
    assert crc32c(data) == KNOWN[data]
    assert crc32c_of_each(data, [0, 0], [len(data), 0]) == [KNOWN[data], 0]


@pytest.mark.usefixtures("way")
def test_long_data_is_the_same_in_one_piece_and_many():
    data = bytes(range(251)) * 400
    assert [crc32c(data)] == crc32c_of_each(data, [0], [len(data)])


def test_the_mask_is_that_of_tfrecord():
    assert masked(crc32c(b"hello")) == 0x191C1FBB


@given(st.binary(max_size=3000), st.data())
def test_pieces_have_the_checksums_of_their_bytes(data, draw):
    places = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=8)))
    begins, ends = places[:-1], places[1:]
    google, checksums._google = checksums._google, None
    try:
        assert crc32c_of_each(data, begins, ends) == [crc32c(data[a:b]) for a, b in zip(begins, ends, strict=True)]
    finally:
        checksums._google = google


@given(st.binary(max_size=200))
def test_crc_32_is_zlibs(data):
    assert crc32(data) == zlib.crc32(data)
