"""Coalescing of many small pieces into fewer."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.backends.kubernetes.coalesce import gathered


@given(st.lists(st.binary(max_size=20), max_size=30))
def test_the_bytes_come_as_they_were_sent(pieces: list[bytes]) -> None:
    assert b"".join(gathered(iter(pieces), 0)) == b"".join(pieces)


def test_what_comes_at_once_is_given_at_once() -> None:
    assert len(list(gathered(iter([b"x"] * 500), 0.2))) < 10


def test_what_came_before_a_failure_is_given_before_it() -> None:
    def failing() -> Iterator[bytes]:
        yield b"a"
        yield b"b"
        raise OSError("cut")

    found = gathered(failing())
    assert next(found) == b"ab"
    with pytest.raises(OSError, match="cut"):
        next(found)


def test_a_piece_is_not_held_back_until_the_next_comes() -> None:
    more = threading.Event()

    def slow() -> Iterator[bytes]:
        yield b"first"
        assert more.wait(60)
        yield b"second"

    found = gathered(slow())
    assert next(found) == b"first"
    more.set()
    assert list(found) == [b"second"]


def test_a_closed_consumer_gets_no_more() -> None:
    closed = threading.Event()

    def endless() -> Iterator[bytes]:
        try:
            while True:
                yield b"x" * 1000
        finally:
            closed.set()

    found = gathered(endless())
    next(found)
    found.close()  # type: ignore[attr-defined]
    assert closed.wait(60)
