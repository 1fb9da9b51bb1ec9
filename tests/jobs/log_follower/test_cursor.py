"""Cursor of a log: each line is read once, whatever is cut, requested again or rotated away."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.log_follower.cursor import Line, Place, Reading
from tests.jobs.log_follower.logs import BEGIN, SECOND, written

Log = list[tuple[int, str]]


def asked(log: Log, place: Place) -> bytes:
    """Return the API's answer: all lines from a second on, in the order of the log."""
    return b"".join(written(stamp, body) for stamp, body in log if stamp >= place.since * SECOND)


def bodies(lines: list[Line]) -> list[str]:
    return [line.body.decode() for line in lines]


# Several lines with the same timestamp, streams that overtake each other by less than a second, and pauses.
@st.composite
def logs(draw: st.DrawFn) -> Log:
    now, log = BEGIN, []
    for number in range(draw(st.integers(0, 30))):
        now += draw(st.sampled_from([0, 0, 1, 300_000_000, SECOND, 5 * SECOND]))
        behind = draw(st.sampled_from([0, 0, 0, 1, 900_000_000]))
        log.append((now - behind, f"line {number}"))
    return log


@pytest.mark.invariant(
    "Each log line of a program without an agent is stored once and in order, wherever the connection breaks."
)
@given(logs(), st.data())
def test_wherever_the_connection_is_cut_each_line_is_taken_once_and_in_order(log: Log, data: st.DataObject) -> None:
    place, taken, printed = Place("pod"), [], 0
    while printed < len(log) or len(taken) < len(log):
        printed = data.draw(st.integers(printed, len(log)) if data.draw(st.booleans()) else st.just(len(log)))
        answer = asked(log[:printed], place)
        cut = data.draw(st.integers(0, len(answer)) if data.draw(st.booleans()) else st.just(len(answer)))
        reading, pieces = Reading(place), data.draw(st.integers(1, 40))
        for begin in range(0, cut, pieces):
            taken += bodies(reading.feed(answer[begin : min(cut, begin + pieces)]))
        place = reading.place
    assert taken == [body for _, body in log]


@given(logs(), st.data())
def test_the_rest_of_a_rotated_log_is_stored_once(log: Log, data: st.DataObject) -> None:
    log = sorted(log)
    read = data.draw(st.integers(0, len(log)))
    rotated = data.draw(st.integers(0, len(log)))
    first = Reading(Place("pod"))
    before = bodies(first.feed(asked(log[:read], first.place)))
    again = Reading(first.place)
    after = bodies(again.feed(asked(log[rotated:], again.place)))
    latest = log[read - 1][0] if read else 0
    # Lines with the timestamp of the last one cannot be distinguished once some of them are rotated away.
    distinct = [body for stamp, body in log[max(read, rotated) :] if stamp > latest or rotated <= read == 0]
    assert [body for body in after if body in distinct] == distinct
    assert not set(before) & set(after)


def test_a_log_without_known_lines_may_lack_lines_and_reports_it() -> None:
    place = Place("pod").beyond(BEGIN).beyond(BEGIN + 1)
    [line, following] = Reading(place).feed(written(BEGIN + 5, "later") + written(BEGIN + 6, "latest"))
    assert (line.rotated, following.rotated) == (True, False)
    [line] = Reading(place).feed(written(BEGIN + 1, "known") + written(BEGIN + 5, "later"))
    assert not line.rotated


def test_lines_of_one_very_time_are_counted() -> None:
    log = [(BEGIN, "a"), (BEGIN, "b"), (BEGIN, "c")]
    first = Reading(Place("pod"))
    assert bodies(first.feed(asked(log[:2], first.place))) == ["a", "b"]
    assert bodies(Reading(first.place).feed(asked(log, first.place))) == ["c"]


def test_half_a_line_waits_for_its_end() -> None:
    reading = Reading(Place("pod"))
    whole = written(BEGIN, "one line")
    assert reading.feed(whole[:20]) == []
    assert bodies(reading.feed(whole[20:])) == ["one line"]


def test_a_line_that_a_program_left_unfinished_is_its_last() -> None:
    reading = Reading(Place("pod"))
    assert reading.feed(written(BEGIN, "no line break").rstrip(b"\n")) == []
    assert bodies(reading.end()) == ["no line break"]
    assert reading.end() == []


def test_a_message_of_the_node_is_no_line_of_the_program() -> None:
    said = b'unable to retrieve container logs for containerd://c59b\n{"kind":"Status","code":500}\n'
    assert Reading(Place("pod")).feed(said + written(BEGIN, "mine")) == [Line(BEGIN, b"mine")]


def test_of_a_line_without_end_no_more_is_held_than_is_shown() -> None:
    reading = Reading(Place("pod"))
    for _ in range(100):
        assert reading.feed(b"x" * 10_000) == []
    reading = Reading(Place("pod"))
    reading.feed(written(BEGIN, "x" * 1_000_000)[:-1])
    [line] = reading.feed(b"\n")
    assert len(line.body) + line.cut == 1_000_000
    assert len(line.body) < 80_000


def test_the_pieces_of_a_long_line_are_put_together() -> None:
    times = [written(BEGIN + number, "").rstrip(b"\n") for number in range(3)]
    text = bytes(range(97, 122)) * 1600
    pieces = [text[:16384], text[16384:32768], text[32768:]]
    given = b"".join(time + piece for time, piece in zip(times, pieces, strict=True))
    assert Reading(Place("pod")).feed(given + b"\n") == [Line(BEGIN, text)]


def test_a_time_that_a_program_prints_stays() -> None:
    text = written(BEGIN, "xx").rstrip(b"\n") * 1000
    assert Reading(Place("pod")).feed(written(BEGIN, "")[:-1] + text + b"\n") == [Line(BEGIN, text)]


@pytest.mark.parametrize(
    ("stamp", "expected"),
    [
        (b"2026-11-22T14:41:44Z", 1795358504 * SECOND),
        (b"2026-11-22T14:41:44.5Z", 1795358504 * SECOND + 500_000_000),
        (b"2026-11-22T14:41:44.000000001Z", 1795358504 * SECOND + 1),
        (b"2026-11-22T22:41:44.000000001+08:00", 1795358504 * SECOND + 1),
    ],
)
def test_times_of_nodes_in_their_spellings(stamp: bytes, expected: int) -> None:
    [line] = Reading(Place("pod")).feed(stamp + b" said\n")
    assert (line.stamp, line.body) == (expected, b"said")
