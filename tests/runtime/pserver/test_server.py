"""The server keeps the answer of a request only while its connection waits for it."""

from __future__ import annotations

import threading

import pytest

from runtime.parameters.messages import Outcome
from runtime.parameters.sharding import even_table
from runtime.pserver.requests import Release, Ticket
from runtime.pserver.server import ShardServer
from runtime.pserver.shard import Shard


@pytest.fixture
def server() -> ShardServer:
    return ShardServer(Shard(0, even_table(1), 1))


def fails() -> None:
    raise ConnectionResetError


def test_an_answer_that_comes_after_its_connection_broke_is_not_kept(server: ShardServer) -> None:
    tickets: list[Ticket] = []

    def waits(ticket: Ticket) -> list[Release]:
        tickets.append(ticket)
        return []

    with pytest.raises(ConnectionResetError):
        server.ask(waits, has_more=lambda: True, send_more=fails)
    answer = server.ask(lambda own: [Release(ticket, Outcome.DONE, version=7) for ticket in (*tickets, own)])
    assert answer.version == 7
    assert not server._released


def test_an_answer_that_came_before_its_connection_broke_is_not_kept(server: ShardServer) -> None:
    """Another connection's request releases the ticket of one that is sending."""
    sent, released = threading.Event(), threading.Event()
    tickets: list[Ticket] = []

    def waits(ticket: Ticket) -> list[Release]:
        tickets.append(ticket)
        return []

    def sends() -> None:
        sent.set()
        assert released.wait(60)
        fails()

    def ask() -> None:
        with pytest.raises(ConnectionResetError):
            server.ask(waits, has_more=lambda: True, send_more=sends)

    connection = threading.Thread(target=ask)
    connection.start()
    assert sent.wait(60)
    server.ask(lambda own: [Release(ticket, Outcome.DONE) for ticket in (*tickets, own)])
    released.set()
    connection.join(10)
    assert not server._released
