import socket
import time

import pytest

from runtime.errors import Refused, WireError
from runtime.protocol.client import Client
from runtime.protocol.concurrent_exchange import Exchange, converse
from runtime.protocol.connection import Closed, Connection, Message
from runtime.protocol.frames import MAX_PAYLOAD, Header, Op
from runtime.protocol.replies import reply_head
from runtime.protocol.server import Server

# More than all buffers of a connection hold, so that a peer that only sends is stuck.
MANY = 48


class EchoesAtOnce:
    """Sends every block back before it reads the next one, and replies after all of them."""

    def __init__(self):
        self.memory = memoryview(bytearray(MAX_PAYLOAD))

    def allocate(self, header):
        return self.memory[: header.size]

    def began(self, head, body, send):
        self.head, self.send = head, send

    def arrived(self, header):
        block = header._replace(crc=0), self.memory[: header.size]
        self.send(Message(reply_head(self.head)._replace(op=Op.AHEAD), {}, [block]))

    def answer(self, request):
        if request.body.get("refuse"):
            raise Refused("no", "Not this.")
        return Message(reply_head(request.head), {"blocks": len(request.blocks)})

    def closed(self):
        pass


@pytest.fixture
def address():
    server = Server(EchoesAtOnce)
    server.start()
    yield server.address
    server.close()


def blocks():
    payload = memoryview(bytes(range(256)) * (MAX_PAYLOAD // 256))
    return [(Header(Op.BLOCK, offset=number), payload) for number in range(MANY)]


def test_answers_are_read_while_the_request_is_sent(address):
    clients = [Client(address) for _ in range(2)]
    came = []
    memory = memoryview(bytearray(MAX_PAYLOAD))
    asked = [client.prepare(Op.PUSH, {}, blocks()) for client in clients]
    exchanges = [
        client.exchange(message, lambda header: memory, arrived=lambda header: came.append(header.offset))
        for client, message in zip(clients, asked, strict=True)
    ]
    converse(exchanges)
    replies = [
        client.reply(message, exchange=exchange)
        for client, message, exchange in zip(clients, asked, exchanges, strict=True)
    ]
    assert [reply.body for reply in replies] == [{"blocks": MANY}] * 2
    assert sorted(came) == sorted([*range(MANY)] * 2)


def test_a_refusal_to_one_leaves_the_other_alone(address):
    clients = [Client(address) for _ in range(2)]
    asked = [client.prepare(Op.PUSH, {"refuse": number == 0}) for number, client in enumerate(clients)]
    exchanges = [
        client.exchange(message, lambda header: memoryview(b"")) for client, message in zip(clients, asked, strict=True)
    ]
    converse(exchanges)
    with pytest.raises(Refused, match="Not this"):
        clients[0].reply(asked[0], exchange=exchanges[0])
    assert clients[1].reply(asked[1], exchange=exchanges[1]).body == {"blocks": 0}
    assert clients[0].call(Op.PUSH) == {"blocks": 0}, "the connection is still good"


def pair():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        return Connection(near), listener.accept()[0]


def exchange(connection, patience=5.0):
    message = Message(Header(Op.PULL), {})
    return Exchange(connection, message, lambda answer: True, patience, lambda header: memoryview(b""))


def test_a_peer_that_goes_away_ends_only_its_exchange():
    gone, far = pair()
    far.close()
    one = exchange(gone)
    converse([one])
    with pytest.raises(Closed):
        one.result()


def test_bytes_that_are_no_frame_end_the_exchange():
    odd, far = pair()
    far.sendall(b"x" * 64)
    one = exchange(odd)
    converse([one])
    with pytest.raises(WireError, match="no frame"):
        one.result()


@pytest.mark.timed
def test_a_silent_peer_is_given_up_after_its_time():
    silent, far = pair()
    begun = time.monotonic()
    one = exchange(silent, patience=0.1)
    converse([one])
    with pytest.raises(WireError, match="did not answer"):
        one.result()
    assert time.monotonic() - begun < 5
    far.close()


def test_a_server_that_cannot_be_reached_is_asked_in_the_ordinary_way():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    client = Client(f"127.0.0.1:{port}")
    assert client.exchange(client.prepare(Op.PULL), lambda header: memoryview(b"")) is None


def test_a_connection_is_closed_where_the_answer_comes_before_all_was_asked():
    """The rest of the request would count as the next one."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = Client("{}:{}".format(*listener.getsockname()))
        asked = client.prepare(Op.PUSH, {}, blocks())
        one = client.exchange(asked, lambda header: memoryview(b""))
        far = listener.accept()[0]
    far.settimeout(5)
    Connection(far).send(Message(reply_head(asked.head), {"early": True}), 5)
    converse([one])
    assert not one.sent
    assert client.reply(asked, exchange=one).body == {"early": True}
    while far.recv(MAX_PAYLOAD):
        pass  # what was sent; if the connection stays open, the next call raises TimeoutError
    far.close()
