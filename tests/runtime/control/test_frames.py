"""Frames of the control channel."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.control import frames
from runtime.control.frames import Decoder, Frame, FrameError, Kind
from tests.properties import examples

FRAMES = st.lists(st.builds(Frame, st.sampled_from(Kind), st.binary(max_size=300)), max_size=10)


def decoded(decoder: Decoder) -> list[Frame]:
    return list(iter(decoder.next_frame, None))


@given(FRAMES, st.data())
def test_frames_come_out_as_they_went_in_however_the_stream_is_cut(sent: list[Frame], data: st.DataObject) -> None:
    stream = b"".join(map(frames.encode, sent))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    decoder, received = Decoder(), list[Frame]()
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        decoder.feed(stream[begin:end])
        received += decoded(decoder)
    assert received == sent


@settings(max_examples=examples(500))
@given(st.binary(max_size=400))
def test_arbitrary_bytes_give_frames_or_a_frame_error_and_nothing_else(stream: bytes) -> None:
    decoder = Decoder()
    decoder.feed(stream)
    try:
        received = decoded(decoder)
    except FrameError:
        return
    assert stream.startswith(b"".join(map(frames.encode, received)))


def test_a_frame_that_announces_more_than_a_mebibyte_is_refused_before_its_payload() -> None:
    decoder = Decoder()
    decoder.feed((frames.PAYLOAD_LIMIT + 1).to_bytes(4, "big") + b"\x01")
    with pytest.raises(FrameError, match="1,048,577"):
        decoder.next_frame()


def test_a_payload_of_a_mebibyte_is_accepted() -> None:
    whole = Frame(Kind.BYTES, bytes(frames.PAYLOAD_LIMIT))
    decoder = Decoder()
    decoder.feed(frames.encode(whole))
    assert decoder.next_frame() == whole


def test_a_longer_payload_cannot_be_sent() -> None:
    with pytest.raises(FrameError):
        frames.encode(Frame(Kind.BYTES, bytes(frames.PAYLOAD_LIMIT + 1)))


@pytest.mark.parametrize("payload", [b"", b"[1]", b"nul", b"\xff{}", b"[" * 5000])
def test_a_json_frame_without_an_object_is_refused(payload: bytes) -> None:
    with pytest.raises(FrameError):
        Frame(Kind.JSON, payload).document()


def test_a_frame_of_bytes_is_no_document() -> None:
    with pytest.raises(FrameError, match="JSON frame was expected"):
        Frame(Kind.BYTES, b"{}").document()
