"""Messages of user code over the link are checked before they are used."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from runtime import contract
from runtime.agent.child_channel import LONGEST_KEY, Link, _point_entry
from runtime.messages import Message, to_json
from runtime.messages import training as training_messages


class Notes:
    """Listener that records its calls."""

    def __init__(self) -> None:
        self.greetings: list[tuple[str, str]] = []
        self.failures: list[str] = []
        self.points: list[Any] = []
        self.events: list[tuple[str, str]] = []
        self.complaints: list[str] = []
        self.pauses: list[tuple[bool, int | None]] = []

    def hello(self, address: str, release: str) -> None:
        self.greetings.append((address, release))

    def metrics(self, entries: list[str]) -> None:
        self.points += map(json.loads, entries)

    def event(self, kind: str, text: str) -> None:
        self.events.append((kind, text))

    def failure(self, text: str) -> None:
        self.failures.append(text)

    def paused(self, stopped: bool, version: int | None) -> None:
        self.pauses.append((stopped, version))

    def misunderstood(self, why: str) -> None:
        self.complaints.append(why)


def receive(*messages: bytes, notes: Notes | None = None) -> Notes:
    link, notes = Link(), notes or Notes()
    with socket.socket(fileno=socket.dup(link.child_end)) as process:
        link.listen(notes)
        process.sendall(b"\n".join(messages) + b"\n")
    link.drain(5)
    return notes


def points(*rows: list[Any]) -> bytes:
    return json.dumps({"op": contract.METRICS, "points": rows}).encode()


def test_address_and_release_of_a_hello_are_passed_on() -> None:
    notes = receive(b'{"op": "hello", "address": "127.0.0.1:9", "release": "1.2"}', b'{"op": "hello"}')
    assert notes.greetings == [("127.0.0.1:9", "1.2"), ("", "")]


def test_one_bad_point_does_not_take_the_good_ones_with_it() -> None:
    notes = receive(
        points([1, 1, "cost", 1], [1, 1, "cost", "high"], [-5, 1, "cost", 1], [1, 2], [1, 2, "cost", "NaN"])
    )
    assert notes.points == [[1.0, 1, "cost", 1.0], [1.0, 2, "cost", "NaN"]]
    assert len(notes.complaints) == 3


@pytest.mark.parametrize(
    ("name", "expected"),
    [("", "?"), ("a\nb", "a?b"), ("\ud800", "?"), ("x" * 999, "x" * LONGEST_KEY), ("Kosten für é", "Kosten für é")],
)
def test_a_metrics_name_becomes_one_that_the_portal_takes(name: str, expected: str) -> None:
    assert receive(points([1, 1, name, 1])).points[0][2] == expected


def test_a_message_with_its_code_is_passed_on_as_one() -> None:
    message = training_messages.INIT_CALLED_TWICE()
    notes = receive(
        json.dumps({"op": "failure", "text": to_json(message)}).encode(),
        json.dumps({"op": "event", "kind": "note", "text": to_json(message)}).encode(),
    )
    passed_on = (*notes.failures, *(text for _, text in notes.events))
    assert [(text, text.code) for text in passed_on if isinstance(text, Message)] == [(message, message.code)] * 2


def test_half_a_character_in_an_event_is_replaced() -> None:
    assert receive(b'{"op": "event", "kind": "note", "text": "\\ud800!"}').events == [("note", "?!")]


@pytest.mark.parametrize(
    "message",
    [b"}{", b"[]", b"7", b'{"op": "dance"}', b'{"no": 1}', b"\xff\xfe", b'{"op": []}', b"[" * 100_000],
    ids=range(8),
)
def test_an_invalid_message_is_reported_and_the_next_is_read(message: bytes) -> None:
    notes = receive(message, b'{"op": "hello"}')
    assert len(notes.complaints) == 1
    assert notes.greetings == [("", "")]


def test_a_process_that_does_not_listen_does_not_hold_the_agent_up() -> None:
    link = Link()
    for _ in range(3):
        link.send(contract.FENCED, why="x" * 10)
    link.listen(Notes())
    link.send(contract.FENCED, why="nobody is there")


@pytest.mark.parametrize("step", [10**400, 2**53 + 1, -(2**53) - 1, 1e300, float("inf"), "many", None], ids=range(7))
def test_a_step_that_the_portal_would_not_take_is_not_kept(step: object) -> None:
    with pytest.raises((ValueError, TypeError, OverflowError)):
        _point_entry(1.0, step, "cost", 0.5)
    assert _point_entry(1.0, 2**53, "cost", 0.5) == f'[1.0, {2**53}, "cost", 0.5]'


class CannotRegister(Notes):
    """Listener that cannot handle a hello message, for lack of threads."""

    def hello(self, address: str, release: str) -> None:
        raise RuntimeError("can't start new thread")


def test_a_message_that_cannot_be_taken_in_keeps_no_other_back() -> None:
    notes = receive(b'{"op": "hello"}', points([1, 1, "cost", 1]), notes=CannotRegister())
    assert notes.complaints == ["can't start new thread"]
    assert notes.points == [[1.0, 1, "cost", 1.0]]


def test_answers_to_pauses_are_checked() -> None:
    answers = [(True, 7), (False, None), (1, 3), (True, -1), (True, 2**60), (True, "seven")]
    messages = [json.dumps({"op": "paused", "stopped": stopped, "version": at}).encode() for stopped, at in answers]
    notes = receive(*messages)
    assert notes.pauses == [(True, 7), (False, None), (False, 3)]
    assert len(notes.complaints) == 3
