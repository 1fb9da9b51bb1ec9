from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from portal.restart_policy import FIRST_DELAY, LONGEST_DELAY, STEADY_SECONDS, Child, began, due, ended, how, line_of_end


def crash(child: Child, now: float, uptime: float) -> Child:
    return ended(began(child, now), now + uptime)


def test_a_new_child_is_started_at_once() -> None:
    assert due(Child("web"), now=0.0)


def test_a_running_child_is_not_started_again() -> None:
    assert not due(began(Child("web"), 0.0), now=1e9)


@given(st.lists(st.floats(0, STEADY_SECONDS - 0.001), min_size=1, max_size=20))
def test_delays_double_up_to_the_longest(starts: list[float]) -> None:
    child, now, delays = Child("web"), 0.0, []
    for uptime in starts:
        child = crash(child, now, uptime)
        delays.append(child.retry_at - (now + uptime))
        now = child.retry_at
    expected = [min(FIRST_DELAY * 2**number, LONGEST_DELAY) for number in range(len(starts))]
    assert [round(delay, 6) for delay in delays] == expected


def test_a_child_that_ran_long_is_started_again_soon() -> None:
    child = crash(crash(crash(Child("web"), 0, 0), 1, 0), 2, uptime=STEADY_SECONDS)
    assert child.retry_at == 2 + STEADY_SECONDS + FIRST_DELAY


def test_the_line_of_an_end_has_the_cause_and_the_delay() -> None:
    child = crash(Child("web"), now=10, uptime=1)
    assert line_of_end(child, -9, now=11) == "web ended (signal SIGKILL); starting it again in 0.5 s."


def test_exit_codes_and_unknown_signals_are_reported() -> None:
    assert (how(3), how(-60)) == ("exit code 3", "signal 60")
