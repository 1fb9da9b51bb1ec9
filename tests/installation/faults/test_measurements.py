"""What is computed from the lines and requests recorded during a fault."""

from __future__ import annotations

from tests.installation.faults import measurements
from tests.installation.faults.measurements import Answers, Continuity, Request, Step


def steps_at(*times: float) -> list[Step]:
    return [Step("trainer-0/a", number, time) for number, time in enumerate(times, start=1)]


def test_steps_are_read_from_the_lines_of_a_job_and_other_lines_are_left_out() -> None:
    texts = ["starting", "step trainer-0/1f 7 1700000000.250", "step trainer-0/1f x 1"]
    assert measurements.steps(texts) == [Step("trainer-0/1f", 7, 1700000000.25)]


def test_each_process_has_its_own_numbers() -> None:
    found = [Step("a", 1, 0.0), Step("b", 1, 0.1), Step("a", 2, 0.2), Step("b", 2, 0.3)]
    assert measurements.continuity(found) == Continuity(0, 0, 0)


def test_a_missing_number_before_the_last_one_is_a_lost_line() -> None:
    assert measurements.continuity([Step("a", 1, 0.0), Step("a", 4, 0.3)]) == Continuity(2, 0, 0)


def test_a_missing_first_line_is_a_lost_line() -> None:
    assert measurements.continuity([Step("a", 2, 0.0), Step("a", 3, 0.1)]) == Continuity(1, 0, 0)


def test_a_repeated_number_is_a_doubled_line() -> None:
    assert measurements.continuity([Step("a", 1, 0.0), Step("a", 2, 0.1), Step("a", 2, 0.1)]) == Continuity(0, 1, 0)


def test_a_smaller_number_after_a_larger_one_is_out_of_order() -> None:
    found = [Step("a", 1, 0.0), Step("a", 3, 0.1), Step("a", 2, 0.2)]
    assert measurements.continuity(found) == Continuity(0, 0, 1)


def test_the_pause_is_the_longest_time_without_a_step_of_any_trainer() -> None:
    found = [*steps_at(0.0, 1.0, 5.0, 6.0), Step("trainer-1/b", 1, 3.5)]
    assert measurements.pause(found, 0.5, 6.5) == 2.5


def test_a_pause_that_began_before_the_fault_counts_from_the_last_step() -> None:
    assert measurements.pause(steps_at(1.0, 9.0), 4.0, 9.5) == 8.0


def test_a_pause_that_has_not_ended_counts() -> None:
    assert measurements.pause(steps_at(1.0, 2.0), 0.0, 12.0) == 10.0


def test_requests_are_counted_by_their_status_while_the_fault_lasts() -> None:
    requests = [Request(1.0, 0.1, 500), Request(2.0, 0.4, 200), Request(3.0, 0.2, 503), Request(4.0, 0.1, 0)]
    assert measurements.answers(requests, 1.5, 3.5) == Answers(2, {503: 1}, 0.4)


def test_it_is_normal_when_everything_is_ready_and_no_request_fails() -> None:
    found = steps_at(*(each / 4 for each in range(80)))
    assert measurements.until_normal([Request(1.0, 0.5, 503)], found, 0.0, 4.0) == 4.0
    assert measurements.until_normal([Request(9.0, 0.5, 503)], found, 0.0, 4.0) == 9.5


def test_it_is_not_normal_before_the_job_makes_steps_again() -> None:
    assert measurements.until_normal([], steps_at(0.0, 1.0, 7.0, 7.5), 0.5, 2.0) == 6.5


def test_failed_requests_and_pauses_before_the_end_of_the_fault_do_not_count() -> None:
    requests = [Request(1.0, 0.5, 503)]
    assert measurements.until_normal(requests, steps_at(0.0, 4.0, 5.0, 5.5), 4.5, 5.0) == 0.5
