"""Handling of the portal's answers by the sender."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runtime.agent.delivery.ingest_client import Answer, Failed, Gap, Replaced, Taken
from runtime.agent.delivery.shipping import Sender
from runtime.agent.delivery.spool import LOGS


class AnsweringIngest:
    """Ingest that answers batches with the given answers and records the numbers of their entries."""

    def __init__(self, *answers: Callable[[int, int], Answer]) -> None:
        self._answers = list(answers)
        self.sent: list[tuple[int, int]] = []
        self.calls: list[str] = []

    def post_json(self, call: str, body: bytes) -> Answer:
        self.calls.append(call)
        message = json.loads(body)
        if call != LOGS:
            return Taken({})
        first, last = message["first"], message["first"] + len(message["lines"]) - 1
        self.sent.append((first, last))
        return self._answers.pop(0)(first, last) if self._answers else Taken({"last": last})

    def close(self) -> None: ...


def sender(tmp_path: Path, ingest: AnsweringIngest, lines: int, on_replaced: Any = None) -> Sender:
    made = Sender(ingest, "trainer-0", 1, tmp_path, on_replaced or (lambda why: None))  # type: ignore[arg-type]
    for number in range(1, lines + 1):
        made.append(LOGS, [json.dumps([1.0, "stdout", f"line {number}"])])
    return made


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit batches to two lines."""
    monkeypatch.setattr("runtime.agent.delivery.spool.LARGEST_BATCH", 60)


def test_entries_that_the_portal_has_beyond_a_batch_are_not_sent_again(tmp_path: Path, small_batches: None) -> None:
    """As after a lost answer: the portal had accepted a longer batch."""
    ingest = AnsweringIngest(lambda first, last: Taken({"last": 5}))
    made = sender(tmp_path, ingest, lines=6)
    assert made._flush()
    assert ingest.sent == [(1, 2), (6, 6)]


def test_after_a_gap_it_goes_on_where_the_portal_is(tmp_path: Path, small_batches: None) -> None:
    ingest = AnsweringIngest(
        lambda first, last: Taken({"last": last}), lambda first, last: Gap(1), lambda first, last: Taken({"last": last})
    )
    made = sender(tmp_path, ingest, lines=4)
    assert made._flush()
    assert ingest.sent == [(1, 2), (3, 4), (2, 3), (4, 4)]


def test_unaccepted_entries_are_sent_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.agent.delivery.backoff.FIRST_RETRY_SECONDS", 0.0)
    ingest = AnsweringIngest(lambda first, last: Failed(500, "no"), lambda first, last: Failed(0, "no answer"))
    made = sender(tmp_path, ingest, lines=2)
    assert made._flush()
    assert ingest.sent == [(1, 2)] * 3


def test_nothing_is_sent_once_the_attempt_is_over(tmp_path: Path, small_batches: None) -> None:
    reasons: list[str] = []
    ingest = AnsweringIngest(lambda first, last: Replaced("a newer attempt runs"))
    made = sender(tmp_path, ingest, lines=6, on_replaced=reasons.append)
    assert not made._flush()
    assert (ingest.sent, reasons) == ([(1, 2)], ["a newer attempt runs"])


def test_the_last_report_goes_when_all_lines_are_taken(tmp_path: Path) -> None:
    ingest = AnsweringIngest()
    made = sender(tmp_path, ingest, lines=2)
    made.start()
    assert made.finish(tmp_path / "none", {"phase": "exited"})
    assert ingest.calls[-1] == "report"
    assert LOGS in ingest.calls[:-1]


class PausingCondition(threading.Condition):
    """Condition whose waiting takes no real time, and all of it on its own clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.pauses: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.pauses.append(round(timeout or 0.0, 3))
        self.now += timeout or 0.0
        return False


def test_pauses_grow_to_a_bound_and_restart_after_a_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no = [lambda first, last: Failed(503, "no")]
    ingest = AnsweringIngest(*no * 7, lambda first, last: Taken({"last": last}), *no)
    made = sender(tmp_path, ingest, lines=1)
    condition = PausingCondition()
    made._backoff._changed = condition
    monkeypatch.setattr("runtime.agent.delivery.shipping.time.monotonic", lambda: condition.now)
    assert made._flush()
    made.append(LOGS, [json.dumps([1.0, "stdout", "another"])])
    assert made._flush()
    assert condition.pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 0.1]
