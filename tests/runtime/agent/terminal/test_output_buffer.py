"""The last output of a terminal, read after a cursor."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.agent.terminal.output_buffer import OutputBuffer

pieces = st.lists(st.binary(max_size=12), max_size=30)


@pytest.mark.invariant("A terminal's viewer that returns with its cursor gets what it missed once, in order.")
@given(pieces, st.integers(0, 40), st.integers(1, 20))
def test_reading_from_any_cursor_to_the_end_gives_the_rest_once(written: list[bytes], cut: int, most: int) -> None:
    buffer = OutputBuffer(10**6)
    for piece in written:
        buffer.append(piece)
    whole = b"".join(written)
    cursor, found = min(cut, len(whole)), b""
    while data := buffer.read(cursor, most)[1]:
        assert len(data) <= most
        cursor, found = cursor + len(data), found + data
    assert found == whole[min(cut, len(whole)) :]


@given(pieces, st.integers(1, 25), st.integers(-1, 400))
def test_only_the_newest_bytes_are_kept_and_the_gap_before_them_is_known(
    written: list[bytes], capacity: int, after: int
) -> None:
    buffer = OutputBuffer(capacity)
    for piece in written:
        buffer.append(piece)
    whole = b"".join(written)
    assert buffer.end == len(whole)
    assert buffer.end - buffer.first <= capacity
    position, data = buffer.read(after, 10**6)
    assert position == min(max(after, buffer.first), buffer.end)
    assert data == whole[position:]
