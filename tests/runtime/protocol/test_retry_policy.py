"""The meaning of failures, and the times of the tries after them."""

import pytest

from runtime.errors import Leaving, Lost, Refused, WireError
from runtime.protocol.connection import Closed, DeadlinePassed
from runtime.protocol.frames import BAD_FRAME, SUPERSEDED
from runtime.protocol.retry_policy import BACK_OFF_SECONDS, DAMAGES, Failure, RetryPolicy, failure_of


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (Closed("gone"), Failure.BROKEN),
        (ConnectionResetError("reset"), Failure.BROKEN),
        (Refused(SUPERSEDED, "a copy came first"), Failure.BROKEN),
        (Refused(BAD_FRAME, "bad checksum"), Failure.DAMAGED),
        (WireError("bad checksum"), Failure.DAMAGED),
        (DeadlinePassed("nothing came"), Failure.SILENT),
        (Leaving("asked to end"), Failure.STOPPED),
        (Refused("not_owner", "replaced"), Failure.FINAL),
        (Lost("nobody took its place"), Failure.FINAL),
    ],
)
def test_the_meaning_of_each_failure(error, failure):
    assert failure_of(error) is failure


def test_the_pauses_grow_to_the_longest_and_stay_there():
    policy = RetryPolicy(60.0, clock=lambda: 0.0)
    pauses = [policy.next_pause() for _ in range(len(BACK_OFF_SECONDS) + 2)]
    assert pauses == [*BACK_OFF_SECONDS, BACK_OFF_SECONDS[-1], BACK_OFF_SECONDS[-1]]


def test_no_try_begins_after_the_deadline():
    now = [0.0]
    policy = RetryPolicy(1.0, clock=lambda: now[0])
    now[0] = 1.0 - BACK_OFF_SECONDS[0]
    assert policy.next_pause() == BACK_OFF_SECONDS[0]
    assert policy.next_pause() is None


def test_only_damaged_messages_make_a_peer_incompatible():
    policy = RetryPolicy(60.0)
    assert not any(policy.is_incompatible(Failure.BROKEN) for _ in range(2 * DAMAGES))
    assert [policy.is_incompatible(Failure.DAMAGED) for _ in range(DAMAGES)] == [False] * (DAMAGES - 1) + [True]
