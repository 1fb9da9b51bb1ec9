import re
import socket
import threading

import numpy as np
import pytest

from bench.runtime.proxy import DOWN, UP, Proxy
from jobs.messages import jobs as job_messages
from runtime.errors import Leaving, Lost, Refused, WireError
from runtime.messages import training as training_messages
from runtime.protocol import frames
from runtime.protocol.client import Client, Moved
from runtime.protocol.connection import Connection, Message
from runtime.protocol.frames import DType, Flag, Header, Op
from runtime.protocol.replies import reply_head
from runtime.protocol.server import JsonSession, Server
from tests.messages import pattern


@pytest.fixture
def serve():
    running = []

    def start(open_session, **options):
        server = Server(open_session, **options)
        server.start()
        running.append(server)
        return server

    yield start
    for server in running:
        server.close()


def echo(head, body):
    return {"seq": head.seq, **body}


class EchoBlocks:
    """Answers with the received blocks."""

    def __init__(self):
        self.memory = {}

    def allocate(self, header):
        return self.memory.setdefault((header.tensor, header.offset), memoryview(bytearray(header.size)))

    def answer(self, request):
        return Message(reply_head(request.head), request.body, request.blocks)

    def closed(self):
        pass


class SendsBlock(EchoBlocks):
    """Answers with these numbers."""

    def __init__(self, numbers):
        super().__init__()
        self.numbers = numbers

    def answer(self, request):
        block = (Header(Op.BLOCK, dtype=DType.F32), self.numbers.data.cast("B"))
        return Message(reply_head(request.head), {}, [block])


class SlowSession(JsonSession):
    """Takes longer for an answer than a client waits without wait replies."""

    def __init__(self, function, until):
        super().__init__(function)
        self.until = until

    def answer(self, request):
        self.until.wait(60)
        return super().answer(request)


class CutsFirstReply:
    """A proxy that loses the reply of the first connection and passes the others on."""

    def __init__(self, target):
        self.target = target
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        for number in range(2):
            near, _ = self.listener.accept()
            far = Connection(socket.create_connection(self.target))
            here = Connection(near)
            far.send(here.receive(10), 10)
            answer = far.receive(10)
            if number:
                here.send(answer, 10)
            here.close()
            far.close()
        self.listener.close()


def test_a_request_is_answered_with_its_own_number(serve):
    server = serve(lambda: JsonSession(echo))
    client = Client(server.address)
    assert [client.call(Op.TASK_GET, {"a": n}) for n in range(3)] == [{"seq": n + 1, "a": n} for n in range(3)]
    client.close()


def test_an_answer_names_the_process_that_gave_it(serve):
    server = serve(lambda: JsonSession(echo), incarnation=7)
    client = Client(server.address, expected=7)
    assert client.request(Op.TASK_GET, {}).head.incarnation == 7
    client.close()


class AnswersAnother(EchoBlocks):
    """Sends the answer of another request once, as if bytes had been left over."""

    asked = 0

    def answer(self, request):
        AnswersAnother.asked += 1
        if AnswersAnother.asked > 1:
            return super().answer(request)
        return Message(reply_head(request.head)._replace(seq=request.head.seq + 1), {"of": "another"})


def test_the_answer_to_another_request_is_not_taken_and_the_request_is_sent_again(serve, monkeypatch):
    monkeypatch.setattr(AnswersAnother, "asked", 0)
    client = Client(serve(AnswersAnother).address)
    assert client.call(Op.TASK_GET, {"of": "this"}) == {"of": "this"}
    assert AnswersAnother.asked == 2
    client.close()


def test_a_request_that_a_copy_of_it_superseded_is_sent_again(serve):
    asked = []

    def superseded_once(head, body):
        asked.append(head.seq)
        if len(asked) == 1:
            raise Refused(frames.SUPERSEDED, "The same request came on another connection.")
        return body

    client = Client(serve(lambda: JsonSession(superseded_once)).address)
    assert client.call(Op.TASK_GET, {"a": 1}) == {"a": 1}
    assert asked == [1, 1]
    client.close()


def test_blocks_go_there_and_back_unchanged(serve):
    server = serve(EchoBlocks)
    numbers = np.arange(2 * 262_144, dtype="<f4")
    halves = [numbers[:262_144], numbers[262_144:]]
    blocks = [(Header(Op.BLOCK, dtype=DType.F32, offset=n), half.data.cast("B")) for n, half in enumerate(halves)]
    came = np.zeros_like(numbers)
    client = Client(server.address)
    client.request(
        Op.PUSH_PULL, {"n": 1}, blocks, lambda h: came[h.offset * 262_144 : (h.offset + 1) * 262_144].data.cast("B")
    )
    client.close()
    assert (came == numbers).all()


def test_more_frames_than_one_system_call_takes_arrive(serve):
    server = serve(EchoBlocks)
    blocks = [(Header(Op.BLOCK, offset=n), memoryview(bytes([n % 256]))) for n in range(1500)]
    came = {}
    client = Client(server.address)
    client.request(Op.PUSH_PULL, {}, blocks, lambda h: came.setdefault(h.offset, memoryview(bytearray(1))))
    client.close()
    assert [bytes(came[n]) for n in range(1500)] == [bytes([n % 256]) for n in range(1500)]


def test_a_refusal_arrives_with_code_and_message(serve):
    def refuse(head, body):
        raise Refused("stale", "Somebody else has the task.")

    client = Client(serve(lambda: JsonSession(refuse)).address)
    with pytest.raises(Refused, match="Somebody else") as caught:
        client.call(Op.TASK_DONE)
    client.close()
    assert caught.value.code == "stale"


def test_after_a_refusal_the_connection_is_still_good(serve):
    def refuse_odd(head, body):
        if head.seq % 2:
            raise Refused("odd", "No.")
        return {}

    client = Client(serve(lambda: JsonSession(refuse_odd)).address)
    with pytest.raises(Refused):
        client.call(Op.STATUS)
    assert client.call(Op.STATUS) == {}
    client.close()


@pytest.mark.parametrize(
    ("mine", "theirs", "code"),
    [({"job": 1}, {"job": 2}, "other_job"), ({"expected": 7}, {"incarnation": 8}, "not_owner")],
)
def test_requests_for_another_process_are_refused(serve, mine, theirs, code):
    client = Client(serve(lambda: JsonSession(echo), **theirs).address, **mine)
    with pytest.raises(Refused) as caught:
        client.call(Op.STATUS)
    client.close()
    assert caught.value.code == code


def test_a_slow_server_sends_wait_replies_while_its_thread_is_busy(serve):
    until = threading.Event()
    client = Client(serve(lambda: SlowSession(echo, until), waiting=0.05).address, deadline=0.4)
    timer = threading.Timer(1.2, until.set)
    timer.start()
    assert client.call(Op.STATUS, {"a": 1}) == {"seq": 1, "a": 1}
    timer.join()
    client.close()


def test_a_wait_reply_after_the_answer_is_ignored(serve):
    client = Client(serve(lambda: JsonSession(echo), waiting=1e-5).address)
    assert [client.call(Op.STATUS)["seq"] for _ in range(500)] == list(range(1, 501))
    client.close()


def test_what_keeps_moving_may_take_longer_than_the_patience(serve):
    numbers = np.arange(1 << 18, dtype="<f4")
    proxy = Proxy(serve(lambda: SendsBlock(numbers)).address)
    proxy.edge.weather.rate = 1e6  # bytes a second: it takes about one
    client = Client(proxy.address, deadline=0.4)
    came = np.zeros_like(numbers)
    client.request(Op.PULL, allocate=lambda header: came.data.cast("B"))
    np.testing.assert_array_equal(came, numbers)
    client.close()
    proxy.close()


def test_a_lost_reply_leads_to_the_same_request_again(serve):
    seen = []
    server = serve(lambda: JsonSession(lambda head, body: seen.append(head.seq) or {"ok": True}))
    host, _, port = server.address.rpartition(":")
    client = Client(CutsFirstReply((host, int(port))).address)
    assert client.call(Op.STATUS) == {"ok": True}
    client.close()
    assert seen == [1, 1]


def test_a_server_that_is_gone_is_lost_within_the_deadline(serve):
    server = serve(lambda: JsonSession(echo))
    client = Client(server.address, name="master", deadline=0.3)
    client.call(Op.STATUS)
    server.close()
    with pytest.raises(Lost, match=pattern(job_messages.GONE)):
        client.call(Op.STATUS)


def test_a_silent_server_is_lost_after_the_deadline():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = Client(f"127.0.0.1:{listener.getsockname()[1]}", deadline=0.2)
        with pytest.raises(Lost, match="not answered"):
            client.call(Op.STATUS)


def test_a_request_to_stop_interrupts_a_wait(monkeypatch):
    monkeypatch.setattr("runtime.protocol.connection.LOOK_SECONDS", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = Client(f"127.0.0.1:{listener.getsockname()[1]}", leaving=lambda: True)
        with pytest.raises(Leaving):
            client.call(Op.STATUS)


def test_bytes_that_are_no_frame_are_answered_with_the_reason(serve):
    server = serve(lambda: JsonSession(echo))
    host, _, port = server.address.rpartition(":")
    with socket.create_connection((host, int(port))) as link:
        link.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: everything at all, please\r\n\r\n")
        answer = Connection(link).receive(5)
    assert answer.head.error
    assert "no frame" in answer.body["why"]


def test_a_block_where_none_is_expected_is_refused(serve):
    client = Client(serve(lambda: JsonSession(echo)).address)
    with pytest.raises(Refused, match="none is expected"):
        client.request(Op.STATUS, {}, [(Header(Op.BLOCK), memoryview(b"1234"))])
    client.close()


def test_closing_ends_connections_that_wait(serve):
    server = serve(lambda: JsonSession(echo))
    client = Client(server.address)
    client.call(Op.STATUS)
    server.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "server-connection"]
    client.close()


def test_a_reply_is_marked_as_one():
    assert reply_head(Header(Op.PULL, seq=4), version=9) == Header(Op.PULL, Flag.REPLY, seq=4, version=9)


def test_an_attempt_has_a_number_of_its_own():
    assert frames.job_crc("a", 1) != frames.job_crc("a", 2)


def test_a_message_that_begins_with_a_block_is_refused():
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as near,
        listener.accept()[0] as far,
    ):
        far.sendall(frames.pack(Header(Op.BLOCK, Flag.LAST)))
        with pytest.raises(WireError, match="begins with a block"):
            Connection(near).receive(1, lambda header: memoryview(b""))


@pytest.mark.parametrize("direction", [UP, DOWN])
def test_what_is_damaged_on_its_way_is_sent_again(serve, direction):
    proxy = Proxy(serve(lambda: JsonSession(echo)).address)
    try:
        proxy.edge.flip(direction, after=frames.HEADER_BYTES + 2)
        assert Client(proxy.address).call(Op.STATUS, {"word": "x"}) == {"seq": 1, "word": "x"}
        assert proxy.edge.flipped == 1
    finally:
        proxy.close()


def test_another_version_is_retried_a_few_times_and_then_an_error(serve, monkeypatch):
    server = serve(lambda: JsonSession(echo))
    asked = []
    pack = frames.pack

    def from_the_future(header, payload=b""):
        asked.append(header.op)
        data = pack(header, payload)
        return data[:4] + bytes([frames.VERSION + 1]) + data[5:]

    monkeypatch.setattr(frames, "pack", from_the_future)
    both = f"{pattern(training_messages.PROTOCOL_VERSIONS_DIFFER)}.*{pattern(training_messages.RERUN_FOR_ONE_VERSION)}"
    with pytest.raises(WireError, match=both) as raised:
        Client(server.address).call(Op.STATUS)
    assert {frames.VERSION, frames.VERSION + 1} <= set(map(int, re.findall(r"\d+", str(raised.value))))
    assert asked.count(Op.STATUS) == 3


@pytest.fixture
def silent():
    """An address that never answers, as that of a lost host: its queue of connections is full."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting = []
        for _ in range(4):
            waiting.append(socket.socket())
            waiting[-1].setblocking(False)
            waiting[-1].connect_ex(listener.getsockname())
        yield "{}:{}".format(*listener.getsockname())
        for one in waiting:
            one.close()


def test_a_host_that_is_silent_is_left_when_the_server_has_begun_elsewhere(silent, serve, monkeypatch):
    monkeypatch.setattr("runtime.protocol.client.CONNECT_SECONDS", 0.1)
    server = serve(lambda: JsonSession(echo))
    client = Client(silent, deadline=30.0)
    message = client.prepare(Op.HELLO)
    client.send(message)
    threading.Timer(0.3, client.redirect, (server.address, 0)).start()
    with pytest.raises(Moved):
        client.reply(message)
    client.follow()
    assert client.call(Op.HELLO, {"here": True})["here"]
    client.close()


def test_a_host_that_stays_silent_is_lost_after_the_deadline(silent, monkeypatch):
    monkeypatch.setattr("runtime.protocol.client.CONNECT_SECONDS", 0.1)
    client = Client(silent, deadline=0.5)
    with pytest.raises(Lost):
        client.call(Op.HELLO)
