"""Records per second as a parameter server measures them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.pserver.shard_reports import Rate


def test_it_begins_with_the_first_update_and_counts_what_comes_after_it() -> None:
    rate = Rate(every=1.0)
    assert [rate.take(64, 10.0), rate.take(128, 10.5), rate.take(192, 11.0)] == [None, None, 128.0]


def test_a_slow_step_is_the_mean_over_its_time() -> None:
    rate = Rate(every=1.0)
    assert [rate.take(1000, 0.0), rate.take(1000, 20.0), rate.take(2000, 40.0)] == [None, None, 25.0]


def test_no_rate_is_returned_before_the_first_records() -> None:
    rate = Rate(every=1.0)
    assert [rate.take(0, 0.0), rate.take(0, 5.0), rate.take(10, 9.0)] == [None, None, None]


@pytest.mark.invariant("The reported rates add up to the records that were trained.")
@given(st.lists(st.tuples(st.integers(0, 500), st.floats(0.01, 5)), min_size=1, max_size=60))
def test_the_rates_add_up_to_all_records_but_those_of_the_first_update(steps: list[tuple[int, float]]) -> None:
    rate, records, now, begun, at, counted = Rate(every=1.0), 0, 0.0, 0, 0.0, 0.0
    for more, seconds in steps:
        records, now = records + more, now + seconds
        if not begun:
            begun, at = records, now
        rate_given = rate.take(records, now)
        if rate_given is not None:
            assert rate_given > 0
            assert now - at >= 1.0
            counted, at, last = counted + rate_given * (now - at), now, records
            assert counted == pytest.approx(last - begun)
