"""The thread that sends hints."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

import pytest

from portal.common import hint_sender
from portal.common.hint_sender import HintSender
from tests.waiting import until


class Gate:
    """A server that answers when the test opens it."""

    def __init__(self) -> None:
        self.received: list[list[str]] = []
        self.entered, self.opened = threading.Event(), threading.Event()

    def send(self, hints: Sequence[str]) -> None:
        self.entered.set()
        assert self.opened.wait(60)
        self.received.append(list(hints))


class Outage:
    """A server that refuses until ``over``."""

    def __init__(self) -> None:
        self.over = False
        self.calls = 0
        self.received: list[str] = []

    def send(self, hints: Sequence[str]) -> None:
        self.calls += 1
        if not self.over:
            raise ConnectionError("refused")
        self.received += hints


def sender(server: Gate | Outage) -> HintSender:
    return HintSender(server.send, what="The server", without="it is late")


def test_the_caller_does_not_wait_and_equal_hints_are_merged() -> None:
    gate = Gate()
    hints = sender(gate)
    hints.put("first")
    assert gate.entered.wait(60)
    for hint in ("a", "b", "a"):
        hints.put(hint)
    assert not hints.flush(0.0)
    gate.opened.set()
    assert hints.flush(20)
    assert gate.received == [["first"], ["a", "b"]]


def test_the_number_of_waiting_hints_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hint_sender, "MOST_WAITING", 3)
    gate = Gate()
    hints = sender(gate)
    hints.put("first")
    assert gate.entered.wait(60)
    for number in range(10):
        hints.put(str(number))
    gate.opened.set()
    assert hints.flush(20)
    assert gate.received == [["first"], ["0", "1", "2"]]


def test_an_outage_is_logged_once_at_its_beginning_and_once_at_its_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(hint_sender, "PAUSE_SECONDS", 0.01)
    outage = Outage()
    hints = sender(outage)
    until("it has tried three times", lambda: hints.put("lost") or outage.calls >= 3)
    outage.over = True
    until("it sends again", lambda: hints.put("sent") or "sent" in outage.received)
    until("it is logged", lambda: len(caplog.records) == 2)
    assert [record.message for record in caplog.records] == [
        "The server cannot be used; it is late: refused",
        "The server can be used again.",
    ]


def test_the_end_of_a_process_does_not_wait_for_a_server_that_is_away() -> None:
    outage = Outage()
    hints = sender(outage)
    hints.put("lost")
    until("it has failed", lambda: hints._failed)
    hints.put("waits for the pause")
    assert not hints.flush(3600)


def test_a_forked_process_sends_its_own_hints() -> None:
    gate = Gate()
    gate.opened.set()
    hints = sender(gate)
    hints.put("parent")
    assert hints.flush(20)
    child = os.fork()
    if child == 0:
        hints.put("child")
        os._exit(0 if hints.flush(20) and gate.received[-1] == ["child"] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
