"""Events happen in the order of their times, and calls at a limited rate."""

from __future__ import annotations

from functools import partial

import pytest

from jobs.elastic.simulation.event_loop import CallLimiter, EventLoop


def test_events_happen_by_time_and_those_of_one_time_in_the_order_they_were_added() -> None:
    loop, happened, times = EventLoop(), list[str](), list[float]()
    for when, name in ((2.0, "late"), (1.0, "first"), (1.0, "second"), (9.0, "beyond")):
        loop.at(when, partial(happened.append, name))
    loop.run(5.0, lambda: False, times.append)
    assert (happened, times, loop.now) == (["first", "second", "late"], [1.0, 1.0, 2.0], 2.0)


def test_the_loop_ends_when_all_is_done() -> None:
    loop, happened = EventLoop(), list[int]()
    for number in range(3):
        loop.at(float(number), partial(happened.append, number))
    loop.run(5.0, lambda: len(happened) == 2, lambda _now: None)
    assert happened == [0, 1]


def test_calls_at_one_moment_are_made_one_after_the_other() -> None:
    calls = CallLimiter(EventLoop(), 4.0)
    assert [calls.next_call() for _ in range(3)] == pytest.approx([0.25, 0.5, 0.75])
