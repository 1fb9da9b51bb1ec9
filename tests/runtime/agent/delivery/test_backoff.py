"""Pauses between calls and the end of an attempt, on a clock that waiting moves."""

from __future__ import annotations

import threading

import pytest

from runtime.agent.delivery.backoff import Backoff
from runtime.agent.delivery.ingest_client import MISSING_SECONDS, Failed, Missing, Refused, Replaced, Taken


class Waiting(threading.Condition):
    """Condition whose waiting takes no real time, and all of it on its own clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.pauses: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.pauses.append(round(timeout or 0.0, 3))
        self.now += timeout or 0.0
        return False


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Waiting:
    waiting = Waiting()
    monkeypatch.setattr("runtime.agent.delivery.backoff.time.monotonic", lambda: waiting.now)
    return waiting


@pytest.fixture
def reasons() -> list[str]:
    return []


@pytest.fixture
def backoff(waiting: Waiting, reasons: list[str]) -> Backoff:
    return Backoff(waiting, reasons.append, lambda: waiting.now)


def test_pauses_double_up_to_a_bound_and_begin_anew_after_an_answer(backoff: Backoff, waiting: Waiting) -> None:
    for _ in range(7):
        backoff.settled(Failed(503, "no"))
    backoff.settled(Taken({}))
    backoff.settled(Failed(503, "no"))
    assert waiting.pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 0.1]


def test_an_answer_counts_as_a_heartbeat_and_a_failure_does_not(backoff: Backoff, waiting: Waiting) -> None:
    waiting.now += 5.0
    backoff.settled(Failed(503, "no"))
    assert backoff.last_call == 1000.0
    backoff.settled(Refused(422, "unfit", {}))
    assert backoff.last_call == waiting.now


def test_a_replaced_attempt_is_over_and_its_reason_is_passed_on(backoff: Backoff, reasons: list[str]) -> None:
    assert not backoff.over()
    backoff.settled(Replaced("a newer attempt runs"))
    assert (backoff.over(), reasons) == (True, ["a newer attempt runs"])


def test_an_attempt_that_stays_missing_is_replaced(backoff: Backoff, waiting: Waiting, reasons: list[str]) -> None:
    backoff.settled(Missing("gone"))
    assert not backoff.over()
    waiting.now += MISSING_SECONDS + 1.0
    assert isinstance(backoff.settled(Missing("gone")), Replaced)
    assert (backoff.over(), reasons) == (True, ["gone"])


def test_a_pause_ends_when_it_is_time_to_give_up(backoff: Backoff, waiting: Waiting) -> None:
    backoff.give_up_at(1000.05)
    backoff.pause()
    assert (waiting.pauses, backoff.over()) == ([0.05], True)


def test_a_call_is_repeated_until_the_portal_itself_answers(backoff: Backoff) -> None:
    answers = [Failed(502, "bad gateway"), Missing("gone"), Refused(422, "unfit", {}), Taken({})]
    assert backoff.until_taken(lambda: backoff.settled(answers.pop(0)))
    assert answers == [Taken({})]


def test_no_call_is_made_once_it_is_over(backoff: Backoff) -> None:
    backoff.settled(Replaced("a newer attempt runs"))
    assert not backoff.until_taken(lambda: pytest.fail("it was sent"))
