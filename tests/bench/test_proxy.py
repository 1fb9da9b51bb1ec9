"""The fault-injecting proxy disturbs connections as configured."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from bench.runtime.proxy import DOWN, UP, Proxy

SECONDS = 10.0


class Echo:
    """Echoes every byte; ``arrived`` is the received data, by connection."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.arrived: list[bytearray] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                link, _peer = self._listener.accept()
            except OSError:
                return
            self.arrived.append(bytearray())
            threading.Thread(target=self._answer, args=(link, self.arrived[-1]), daemon=True).start()

    def _answer(self, link: socket.socket, arrived: bytearray) -> None:
        with link, contextlib.suppress(ConnectionError):
            while data := link.recv(65536):
                arrived += data
                link.sendall(data)


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    proxy = Proxy(echo.address)
    yield proxy
    proxy.close()


def dial(proxy: Proxy) -> socket.socket:
    host, _colon, port = proxy.address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=SECONDS)


def echoed(link: socket.socket, data: bytes) -> bytes:
    link.sendall(data)
    return received(link, len(data))


def received(link: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := link.recv(size - len(data))):
        data += more
    return data


def silent(link: socket.socket) -> bool:
    link.settimeout(0.1)
    try:
        return link.recv(1) is None
    except TimeoutError:
        return True
    finally:
        link.settimeout(SECONDS)


def test_without_disturbances_everything_passes(proxy: Proxy) -> None:
    data = bytes(range(256)) * 1000
    assert echoed(dial(proxy), data) == data


@pytest.mark.parametrize("direction", [UP, DOWN])
def test_a_cut_is_silent_and_held_data_arrives_after_healing(proxy: Proxy, echo: Echo, direction: str) -> None:
    link = dial(proxy)
    assert echoed(link, b"a") == b"a"
    proxy.edge.cut(direction)
    link.sendall(b"b")
    assert silent(link)
    assert bytes(echo.arrived[0]) == (b"a" if direction == UP else b"ab")
    proxy.edge.heal()
    assert received(link, 1) == b"b"


def test_a_reset_breaks_the_connection_at_once(proxy: Proxy) -> None:
    link = dial(proxy)
    assert echoed(link, b"a") == b"a"
    proxy.edge.reset()
    with pytest.raises(ConnectionResetError):
        link.recv(1)


def test_a_refusal_ends_connections_and_accepts_no_more(proxy: Proxy) -> None:
    link = dial(proxy)
    assert echoed(link, b"a") == b"a"
    proxy.edge.refuse()
    with pytest.raises(ConnectionResetError):
        link.recv(1)
    with pytest.raises(ConnectionResetError):
        dial(proxy).recv(1)


def test_one_bit_is_flipped_at_the_requested_place_and_no_other(proxy: Proxy) -> None:
    proxy.edge.flip(UP, after=2)
    link = dial(proxy)
    assert echoed(link, b"aaaa") == b"aaqa"
    assert echoed(link, b"aaaa") == b"aaaa"
    assert proxy.edge.flipped == 1


def test_a_doubled_connection_arrives_twice_and_is_answered_once(proxy: Proxy, echo: Echo) -> None:
    proxy.edge.weather.doubling = True
    link = dial(proxy)
    assert echoed(link, b"abc") == b"abc"
    deadline = time.monotonic() + SECONDS
    while [bytes(each) for each in echo.arrived] != [b"abc"] * 2:
        assert time.monotonic() < deadline
    assert silent(link)


def test_delay_is_added_in_each_direction(proxy: Proxy) -> None:
    proxy.edge.weather.delay = 0.05
    link = dial(proxy)
    began = time.monotonic()
    assert echoed(link, b"a") == b"a"
    assert time.monotonic() - began >= 0.1


def test_a_rate_is_not_exceeded(proxy: Proxy) -> None:
    proxy.edge.weather.rate = 1e6
    link = dial(proxy)
    began = time.monotonic()
    assert len(echoed(link, bytes(100_000))) == 100_000
    assert time.monotonic() - began >= 0.1


def test_a_client_that_names_its_target_uses_that_edge(echo: Echo) -> None:
    other = Echo()
    proxy = Proxy(name_of={echo.address: "echo", other.address: "other"}.__getitem__)
    try:
        links = []
        for target in (echo, other):
            links.append(dial(proxy))
            links[-1].sendall(f"{target.address}\n".encode())
            assert echoed(links[-1], b"a") == b"a"
        proxy["echo"].cut()
        links[0].sendall(b"b")
        assert silent(links[0])
        assert echoed(links[1], b"b") == b"b"
    finally:
        proxy.close()
        other.close()
