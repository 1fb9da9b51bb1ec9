"""Codec of blocks: unpacking returns the packed entries bit for bit."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.streams.block_codec import (
    DEFLATED,
    PLAIN,
    STREAMS,
    Lines,
    Points,
    WriterId,
    merge_lines,
    merge_points,
    pack_lines,
    pack_points,
    seal_lines,
    seal_points,
    unpack_lines,
    unpack_points,
)

numbers = st.floats(allow_nan=True, allow_infinity=True)
writers = st.builds(WriterId, st.integers(1, 5), st.sampled_from(["trainer-0", "trainer-1", "master-0"]))
point_rows = st.lists(
    st.tuples(st.floats(0, 2e9), st.floats(-1e9, 1e9), st.text(min_size=1, max_size=5), numbers), max_size=30
)
line_rows = st.lists(st.tuples(st.floats(0, 2e9), st.sampled_from(STREAMS), st.text(max_size=40)), max_size=30)


def bits(rows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Return rows with floats as bytes, so that a NaN equals itself."""
    return [tuple(struct.pack("<d", item) if isinstance(item, float) else item for item in row) for row in rows]


def point_rows_of(points: Points) -> list[tuple[object, ...]]:
    columns = zip(points.times, points.steps, points.key, points.values, points.source, strict=True)
    return [
        (float(time), float(step), points.keys[key], float(value), points.sources[source])
        for time, step, key, value, source in columns
    ]


def line_rows_of(lines: Lines) -> list[tuple[object, ...]]:
    columns = zip(lines.times, lines.stream, lines.texts, lines.source, strict=True)
    return [(float(time), STREAMS[stream], text, lines.sources[source]) for time, stream, text, source in columns]


def deflated(points: Points) -> bytes:
    """Return a sealed block in the format of an earlier release."""
    payload = pack_points(points)
    assert payload[0] == PLAIN
    return bytes([DEFLATED]) + zlib.compress(payload[1:])


@pytest.mark.parametrize("pack", [pack_points, deflated, seal_points])
@given(rows=point_rows, writer=writers)
def test_points_survive_packing(
    rows: list[tuple[float, float, str, float]], writer: WriterId, pack: Callable[[Points], bytes]
) -> None:
    back = unpack_points(pack(Points.from_rows(rows, writer)))
    assert bits(point_rows_of(back)) == bits([(*row, writer) for row in rows])


@pytest.mark.parametrize("pack", [pack_lines, seal_lines])
@given(rows=line_rows, writer=writers)
def test_lines_survive_packing(
    rows: list[tuple[float, str, str]], writer: WriterId, pack: Callable[[Lines], bytes]
) -> None:
    back = unpack_lines(pack(Lines.from_rows(rows, writer)))
    assert bits(line_rows_of(back)) == bits([(*row, writer) for row in rows])


@given(st.lists(st.tuples(point_rows.filter(bool), writers), min_size=1, max_size=5))
def test_merged_points_are_the_points_of_all_in_order(
    parts: list[tuple[list[tuple[float, float, str, float]], WriterId]],
) -> None:
    blocks = [Points.from_rows(rows, writer) for rows, writer in parts]
    merged = unpack_points(seal_points(merge_points(blocks)))
    assert bits(point_rows_of(merged)) == bits([(*row, writer) for rows, writer in parts for row in rows])


@given(st.lists(st.tuples(line_rows.filter(bool), writers), min_size=1, max_size=5))
def test_merged_lines_are_the_lines_of_all_in_order(parts: list[tuple[list[tuple[float, str, str]], WriterId]]) -> None:
    blocks = [Lines.from_rows(rows, writer) for rows, writer in parts]
    merged = unpack_lines(seal_lines(merge_lines(blocks)))
    assert bits(line_rows_of(merged)) == bits([(*row, writer) for rows, writer in parts for row in rows])


@given(point_rows, st.integers(0, 40))
def test_skip_returns_the_rest(rows: list[tuple[float, float, str, float]], count: int) -> None:
    writer = WriterId(1, "trainer-0")
    left = Points.from_rows(rows, writer).skip(count)
    assert bits(point_rows_of(left)) == bits([(*row, writer) for row in rows[count:]])


def test_a_block_of_a_later_release_is_refused() -> None:
    with pytest.raises(ValueError, match="later release"):
        unpack_points(b"\x07whatever")


def test_sealed_points_take_at_most_ten_bytes_each() -> None:
    """Points of four replicas in turn, at uneven times; unsealed ones take 24 bytes each."""
    chance, blocks = random.Random(7), []
    for step in range(0, 1000, 50):
        for replica in range(4):
            rows = [
                (1.7e9 + n + chance.random() / 10, float(n), "cost", chance.random()) for n in range(step, step + 50)
            ]
            blocks.append(Points.from_rows(rows, WriterId(1, f"trainer-{replica}")))
    points = merge_points(blocks)
    assert len(seal_points(points)) <= 10 * len(points)


def test_sealed_lines_that_differ_in_their_numbers_take_less_than_those_numbers_as_text() -> None:
    chance = random.Random(7)
    texts = [f"step {n}: cost {chance.random():.9f}, accuracy {chance.random():.4f}" for n in range(4000)]
    digits = sum(character.isdigit() for text in texts for character in text)
    lines = Lines.from_rows([(float(n), "stdout", text) for n, text in enumerate(texts)], WriterId(1, "trainer-0"))
    assert len(seal_lines(lines)) <= 0.6 * digits
