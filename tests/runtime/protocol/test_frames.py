import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.errors import WireError
from runtime.protocol import frames
from runtime.protocol.frames import DType, Flag, Header, Op

HEAD = Header(
    Op.PUSH_PULL,
    Flag.REPLY | Flag.LAST,
    DType.F32,
    job=1,
    shard=2,
    incarnation=3,
    expected=4,
    seq=5,
    version=6,
    tensor=7,
    offset=8,
)

uint32 = st.integers(0, 2**32 - 1)
uint64 = st.integers(0, 2**64 - 1)
headers = st.tuples(
    st.sampled_from(Op),
    st.sampled_from([Flag.NONE, Flag.REPLY, Flag.REPLY | Flag.ERROR, Flag.LAST]),
    st.sampled_from(DType),
    *(uint32, uint32, uint64, uint64, uint64, uint64, uint32, uint32),
).map(lambda fields: Header(*fields))


def test_the_header_lies_in_64_little_endian_bytes_as_specified():
    packed = frames.pack(HEAD, b"abc")
    assert len(packed) == 64
    assert packed[:8] == b"DPS1" + bytes([3, 6]) + struct.pack("<H", 1 | 4 | 1 << 3)
    assert struct.unpack("<IIQQQQIII", packed[8:60]) == (1, 2, 3, 4, 5, 6, 7, 8, 3)


@given(headers, st.binary(max_size=200))
def test_what_is_packed_is_read_back(header, payload):
    packed = frames.pack(header, payload)
    read = frames.unpack(packed)
    frames.verify(packed, read, payload)
    assert read._replace(size=0, crc=0) == header
    assert read.size == len(payload)


@given(headers, st.binary(min_size=1, max_size=50), st.data())
def test_one_changed_bit_is_noticed(header, payload, data):
    whole = bytearray(frames.pack(header, payload) + payload)
    bit = data.draw(st.integers(0, len(whole) * 8 - 1))
    whole[bit // 8] ^= 1 << bit % 8
    with pytest.raises(WireError):
        frames.verify(whole[:64], frames.unpack(whole[:64]), whole[64:])


@pytest.mark.parametrize(
    ("at", "value", "pattern"),
    [(0, b"HTTP", "no frame"), (4, b"\x09", "version 9"), (5, b"\xff", "operation 255"), (56, b"\xff" * 4, "at most")],
)
def test_foreign_bytes_are_refused_with_a_reason(at, value, pattern):
    packed = bytearray(frames.pack(HEAD))
    packed[at : at + len(value)] = value
    with pytest.raises(WireError, match=pattern):
        frames.unpack(packed)


def test_a_payload_over_one_mebibyte_is_refused():
    with pytest.raises(WireError, match="split it"):
        frames.pack(HEAD, bytes(frames.MAX_PAYLOAD + 1))


def test_a_short_header_is_refused():
    with pytest.raises(WireError, match="64 bytes, 10"):
        frames.unpack(bytes(10))


@pytest.mark.parametrize("payload", [b"\xff\x00", b"[1]", b'"text"', b"{", b"[" * 1024], ids=lambda body: body[:6])
def test_a_control_body_must_be_a_json_object(payload):
    with pytest.raises(WireError, match="JSON"):
        frames.from_json(payload)


def test_an_empty_body_takes_no_bytes():
    assert frames.to_json({}) == b""
    assert frames.from_json(b"") == {}
