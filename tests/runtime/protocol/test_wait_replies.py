"""Wait replies to the peers of a server."""

import threading

import pytest

from runtime.errors import WireError
from runtime.protocol.frames import Flag, Header, Op
from runtime.protocol.wait_replies import WaitReplies


class Peer:
    """Records what is sent to it."""

    def __init__(self, error=None):
        self.sent = threading.Semaphore(0)
        self.messages = []
        self._error = error

    def send_aside(self, message):
        self.messages.append(message)
        self.sent.release()
        if self._error is not None:
            raise self._error


@pytest.fixture
def replies():
    closed = threading.Event()
    running = WaitReplies(0.02, closed)
    running.start()
    yield running
    closed.set()


def test_a_peer_that_waits_long_gets_wait_replies_with_the_number_of_its_request(replies):
    peer = Peer()
    replies.begin(peer, Header(Op.PULL, seq=7))
    assert all(peer.sent.acquire(timeout=5) for _ in range(2))
    replies.end(peer)
    head = peer.messages[0].head
    assert (head.op, head.seq, head.flags) == (Op.WAIT, 7, Flag.REPLY)


def test_a_peer_that_is_answered_gets_no_wait_reply_while_others_do(replies):
    answered, waiting = Peer(), Peer()
    replies.begin(answered, Header(Op.PULL))
    replies.end(answered)
    replies.begin(waiting, Header(Op.PULL))
    assert waiting.sent.acquire(timeout=5)
    assert answered.messages == []


@pytest.mark.parametrize("error", [WireError("gone"), MemoryError()])
def test_a_peer_that_cannot_be_sent_to_keeps_no_other_from_its_wait_reply(replies, error):
    lost, waiting = Peer(error), Peer()
    replies.begin(lost, Header(Op.PULL))
    replies.begin(waiting, Header(Op.PULL))
    assert all(peer.sent.acquire(timeout=5) for peer in (lost, waiting))
