"""Answers of calls: once each, or held until there is a result."""

from __future__ import annotations

import math

import pytest

from runtime.coordination.base import StoreUnavailable
from runtime.errors import Lost, Refused
from runtime.master.group_commit import Ticket
from runtime.master.listener import Call
from runtime.master.messages import Wait
from runtime.master.responder import Responder
from runtime.master.types import Verdict
from runtime.protocol.connection import Message
from runtime.protocol.frames import Header, Op

CALLER = "the connection"
KEY = {"pass_id": 0, "task_id": 0, "epoch": 1}
GET = {"request": 1, "ended": None, "done": []}


class RecordingReception:
    """Records what is sent instead of sending it."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, object]] = []

    def answer(self, call, body):
        self.sent.append(("answer", dict(body)))

    def refuse(self, call, refused):
        self.sent.append(("refuse", refused.code))

    def ask_to_wait(self, call):
        self.sent.append(("wait", call))

    def hang_up(self, caller):
        self.sent.append(("hang up", caller))


@pytest.fixture
def reception() -> RecordingReception:
    return RecordingReception()


@pytest.fixture
def responder(reception) -> Responder:
    return Responder(reception)


def call(op: Op, **body: object) -> Call:
    return Call(CALLER, Message(Header(op, incarnation=7), {"trainer": 0, **body}))


def settle(ticket: Ticket | None, value: object = None, error: Exception | None = None) -> None:
    assert ticket is not None
    ticket.value = value
    ticket.settle(error)


def test_a_result_is_answered(responder, reception):
    settle(responder.ticket(call(Op.TASK_DONE, **KEY)), Verdict.OK)
    assert reception.sent == [("answer", {"counted": True})]


def test_an_invalid_call_is_refused_and_becomes_no_ticket(responder, reception):
    assert responder.ticket(call(Op.TASK_DONE)) is None
    assert reception.sent == [("refuse", "bad_request")]


def test_a_notice_gets_no_answer(responder, reception):
    ticket = responder.ticket(call(Op.TASK_BEGUN, done=[], begun=[]))
    settle(ticket)
    assert ticket.notice
    assert reception.sent == []


@pytest.mark.parametrize(
    ("error", "sent"),
    [
        (StoreUnavailable("away"), ("refuse", "store_unavailable")),
        (Refused("replaced", "another"), ("refuse", "replaced")),
        (Lost("replaced"), ("hang up", CALLER)),
    ],
)
def test_a_failed_call_is_refused_or_disconnected(responder, reception, error, sent):
    settle(responder.ticket(call(Op.TASK_GET, **GET)), error=error)
    assert reception.sent == [sent]


def test_a_call_that_takes_longer_than_usual_gets_a_wait_reply(responder, reception):
    one = call(Op.TASK_GET, **GET)
    responder.ticket(one).waiting()
    assert reception.sent == [("wait", one)]


class TestACallThatHasToWait:
    def test_it_is_held_and_joins_the_next_commit(self, responder, reception):
        settle(responder.ticket(call(Op.TASK_GET, **GET)), Wait(0.0))
        assert reception.sent == []
        assert responder.next_end() is not None
        (ticket,) = responder.retry_held()
        assert responder.next_end() is None
        settle(ticket, error=Refused("job_failed", "it failed"))
        assert reception.sent == [("refuse", "job_failed")]

    def test_a_retry_does_not_prolong_the_time_it_is_held(self, responder):
        settle(responder.ticket(call(Op.TASK_GET, **GET)), Wait(0.0))
        until = responder.next_end()
        (ticket,) = responder.retry_held()
        settle(ticket, Wait(0.0))
        assert responder.next_end() == until

    def test_it_is_answered_once_when_its_time_is_over(self, responder, reception):
        settle(responder.ticket(call(Op.TASK_GET, **GET)), Wait(0.0))
        until = responder.next_end()
        responder.end_held(until - 0.001)
        assert reception.sent == []
        responder.end_held(until)
        responder.end_held(math.inf)
        assert [kind for kind, _ in reception.sent] == ["answer"]

    def test_it_is_answered_at_once_while_the_master_ends(self, responder, reception):
        responder.stop_holding()
        settle(responder.ticket(call(Op.TASK_GET, **GET)), Wait(0.0))
        assert [kind for kind, _ in reception.sent] == ["answer"]
        assert responder.next_end() is None
