"""The order and the times of commits, on a clock that is passed in."""

from __future__ import annotations

from runtime.master.commit_schedule import (
    COMMIT_SECONDS,
    NOTICE_SECONDS,
    STORE_PAUSE_SECONDS,
    WAITING_SECONDS,
    CommitSchedule,
)
from runtime.master.group_commit import Ticket


def ticket(since: float = 0.0, *, notice: bool = False, replies: list[float] | None = None) -> Ticket:
    replies = [] if replies is None else replies
    return Ticket(lambda queue, now: None, since, lambda _: None, lambda: replies.append(since), notice=notice)


def schedule_of(*tickets: Ticket, patience: float = 30.0) -> CommitSchedule:
    schedule = CommitSchedule(patience)
    for one in tickets:
        schedule.add(one)
    return schedule


def test_all_pending_requests_start_as_one_batch_in_order_and_held_calls_after_them():
    first, second, held = ticket(), ticket(), ticket()
    schedule = schedule_of(first, second)
    assert schedule.start(10.0, [held]) == [first, second, held]


def test_nothing_starts_while_nothing_is_pending_or_a_batch_is_in_flight():
    schedule = schedule_of()
    assert schedule.start_at is None
    schedule.add(ticket())
    schedule.start(10.0)
    schedule.add(ticket())
    assert schedule.start_at is None


def test_two_batches_start_at_least_the_minimum_interval_apart():
    schedule = schedule_of(ticket())
    schedule.start(10.0)
    schedule.finish()
    schedule.add(ticket(10.0))
    assert schedule.start_at == 10.0 + COMMIT_SECONDS


def test_a_notice_waits_for_requests_up_to_its_limit():
    schedule = schedule_of(ticket(10.0, notice=True))
    assert schedule.start_at == 10.0 + NOTICE_SECONDS
    schedule.add(ticket(10.01))
    assert schedule.start_at == 0.0


def test_a_ticket_is_pending_or_in_flight_until_its_batch_is_finished():
    first, second = ticket(), ticket()
    schedule = schedule_of(first)
    assert schedule.unfinished() == (first,)
    schedule.start(10.0)
    schedule.add(second)
    assert schedule.unfinished() == (first, second)
    assert schedule.finish() == [first]
    assert schedule.unfinished() == (second,)
    assert not schedule.empty
    schedule.start(11.0)
    assert not schedule.empty
    schedule.finish()
    assert schedule.empty


def test_a_postponed_batch_precedes_later_requests_and_starts_after_a_pause():
    first, later = ticket(10.0), ticket(10.1)
    schedule = schedule_of(first)
    schedule.start(10.0)
    schedule.add(later)
    assert schedule.postpone(10.2) == []
    assert schedule.start_at == 10.2 + STORE_PAUSE_SECONDS
    assert schedule.start(11.0) == [first, later]


def test_a_postponed_request_whose_patience_is_used_up_is_returned_instead_of_retried():
    old, young = ticket(10.0), ticket(10.5)
    schedule = schedule_of(old, young, patience=1.0)
    schedule.start(10.5)
    assert schedule.postpone(11.0) == [old]
    assert schedule.unfinished() == (young,)


def test_requests_that_take_longer_than_usual_get_a_wait_reply_once_per_interval():
    replies: list[float] = []
    schedule = schedule_of(ticket(10.0, replies=replies))
    schedule.start(10.0)
    schedule.add(ticket(10.5, replies=replies))
    schedule.send_wait_replies(10.0 + WAITING_SECONDS)
    schedule.send_wait_replies(10.9 + WAITING_SECONDS)
    assert replies == [10.0]
    schedule.send_wait_replies(10.0 + 2 * WAITING_SECONDS)
    assert replies == [10.0, 10.0, 10.5]
