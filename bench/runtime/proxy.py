"""Fault-injecting TCP proxy: connections pass through it and are disturbed by the weather of their edge.

An edge is from one replica to one server. Its weather can delay, slow down, hold back (in one direction or both: held
data arrives when the edge heals, as if TCP had retransmitted it), reset, flip a bit, refuse and double connections.
Everything happens in threads of the process that uses it; the product needs no change.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

UP, DOWN = "up", "down"  # from the connecting side to the other, and back
BOTH = (UP, DOWN)
_PIECE = 1 << 16
_MOST_HELD = 1 << 23
# Close with a reset instead of an orderly shutdown.
_RESET = struct.pack("ii", 1, 0)


@dataclass
class Weather:
    """Disturbances of an edge. ``delay`` is in seconds one way, ``rate`` in bytes per second each way (0:
    unlimited)."""

    delay: float = 0.0
    rate: float = 0.0
    refusing: bool = False
    doubling: bool = False  # sent data goes to a second connection too, whose answers are discarded
    held: set[str] = field(default_factory=set)
    flips: dict[str, int] = field(default_factory=dict)  # bytes to let pass before a bit is flipped, by direction


class Edge:
    """Connections from one client to one server, and their weather."""

    def __init__(self) -> None:
        self.weather = Weather()
        self.changed = threading.Condition()
        self.connections: list[_Passage] = []
        self.flipped = 0

    def cut(self, *directions: str) -> None:
        """Hold back sent data, in both directions unless one is named. Neither side is notified."""
        with self.changed:
            self.weather.held |= set(directions or BOTH)

    def heal(self) -> None:
        """Let all held and subsequent data pass."""
        with self.changed:
            self.weather = Weather()
            self.changed.notify_all()

    def reset(self) -> None:
        """End every connection with a reset."""
        with self.changed:
            ended, self.connections = self.connections, []
        for passage in ended:
            passage.reset()

    def refuse(self) -> None:
        """Accept no new connections, and end the existing ones."""
        self.weather.refusing = True
        self.reset()

    def flip(self, direction: str, after: int = 0) -> None:
        """Flip one bit of the next data in a direction, after ``after`` bytes."""
        with self.changed:
            self.weather.flips[direction] = after

    def admit(self, passage: _Passage) -> None:
        with self.changed:
            self.connections.append(passage)

    def passed(self, direction: str, data: bytes) -> bytes:
        """Return the data as it arrives. Blocks while the direction is held."""
        with self.changed:
            self.changed.wait_for(lambda: direction not in self.weather.held)
            left = self.weather.flips.get(direction)
            if left is None:
                return data
            if left >= len(data):
                self.weather.flips[direction] = left - len(data)
                return data
            del self.weather.flips[direction]
            self.flipped += 1
        return data[:left] + bytes([data[left] ^ 0x10]) + data[left + 1 :]


class Proxy:
    """Proxy of one client. ``target`` is the address of all connections; without it, the first line of each names its
    own.

    ``name_of`` returns the edge name of an address.
    """

    def __init__(self, target: str = "", name_of: Callable[[str], str] = lambda address: address) -> None:
        self._target = target
        self._name_of = name_of
        self._edges: Mapping[str, Edge] = defaultdict(Edge)
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    @property
    def address(self) -> str:
        host, port = self._listener.getsockname()
        return f"{host}:{port}"

    def __getitem__(self, server: str) -> Edge:
        """The edge to a server, by its name."""
        return self._edges[server]

    @property
    def edge(self) -> Edge:
        """The edge to the only target."""
        return self[self._name_of(self._target)]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for edge in list(self._edges.values()):
            edge.heal()
            edge.reset()

    def _accept(self) -> None:
        while True:
            try:
                client, _peer = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(client,), name="proxy-connection", daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        try:
            target = self._target or _first_line(client)
            edge = self[self._name_of(target)]
            if edge.weather.refusing:
                raise ConnectionRefusedError
            servers = [_dial(target) for _ in range(2 if edge.weather.doubling else 1)]
        except OSError:
            _end_with_reset(client)
            return
        _Passage(edge, client, servers).start()


class _Passage:
    """One connection: a thread for each direction, and one more if it is delayed or slowed down."""

    def __init__(self, edge: Edge, client: socket.socket, servers: list[socket.socket]) -> None:
        self._edge = edge
        self._broken = threading.Event()
        self._sockets = [client, *servers]
        for link in self._sockets:
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def start(self) -> None:
        client, server, *doubles = self._sockets
        self._edge.admit(self)
        self._start(UP, client, [server, *doubles])
        self._start(DOWN, server, [client])
        for double in doubles:
            self._start(DOWN, double, [])

    def reset(self) -> None:
        self._broken.set()
        for link in self._sockets:
            _end_with_reset(link)

    def _start(self, direction: str, source: socket.socket, targets: list[socket.socket]) -> None:
        way = _Way(self._edge, direction, targets, self._broken)
        threading.Thread(target=way.fill, args=(source,), name="proxy-in", daemon=True).start()
        threading.Thread(target=way.drain, name="proxy-out", daemon=True).start()


class _Way:
    """Data in transit in one direction of one connection, with the arrival time of each piece."""

    def __init__(self, edge: Edge, direction: str, targets: list[socket.socket], broken: threading.Event) -> None:
        self._edge = edge
        self._direction = direction
        self._targets = targets
        self._broken = broken  # ends with a reset, so an orderly shutdown must not overtake it
        self._changed = threading.Condition()
        self._pieces: deque[tuple[float, bytes]] = deque()
        self._held = 0
        self._free_at = 0.0  # when the last byte in transit has left
        self._ended = False

    def fill(self, source: socket.socket) -> None:
        """Read until the end, as far ahead as network buffers would."""
        for data in _received(source):
            with self._changed:
                self._changed.wait_for(lambda: self._held < _MOST_HELD)
                self._pieces.append((self._due(len(data)), data))
                self._held += len(data)
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _due(self, size: int) -> float:
        weather = self._edge.weather
        now = time.monotonic()
        self._free_at = max(self._free_at, now) + (size / weather.rate if weather.rate else 0.0)
        return self._free_at + weather.delay

    def drain(self) -> None:
        with contextlib.suppress(OSError):
            while (piece := self._next()) is not None:
                due, data = piece
                if (early := due - time.monotonic()) > 0:
                    time.sleep(early)
                arrived = self._edge.passed(self._direction, data)
                for target in self._targets:
                    target.sendall(arrived)
        for target in () if self._broken.is_set() else self._targets:
            with contextlib.suppress(OSError):
                target.shutdown(socket.SHUT_WR)

    def _next(self) -> tuple[float, bytes] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._pieces or self._ended)
            if not self._pieces:
                return None
            due, data = self._pieces.popleft()
            self._held -= len(data)
            self._changed.notify_all()
            return due, data


def dial_through(proxy: str) -> None:
    """Make every connection of this process that is opened by address go through a proxy."""
    host, _colon, port = proxy.rpartition(":")
    direct = socket.create_connection

    def connect(address: tuple[str, int], *arguments: Any, **options: Any) -> socket.socket:
        link = direct((host, int(port)), *arguments, **options)
        link.sendall(f"{address[0]}:{address[1]}\n".encode())
        return link

    setattr(socket, "create_connection", connect)  # noqa: B010  typed elsewhere


def _dial(address: str) -> socket.socket:
    host, _colon, port = address.rpartition(":")
    link = socket.create_connection((host, int(port)), timeout=5.0)
    link.settimeout(None)
    return link


def _first_line(client: socket.socket) -> str:
    line = b""
    while not line.endswith(b"\n"):
        byte = client.recv(1)
        if not byte:
            raise ConnectionResetError
        line += byte
    return line.decode().strip()


def _received(source: socket.socket) -> Iterator[bytes]:
    with contextlib.suppress(OSError):
        while data := source.recv(_PIECE):
            yield data


def _end_with_reset(link: socket.socket) -> None:
    with contextlib.suppress(OSError):
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    with contextlib.suppress(OSError):
        link.shutdown(socket.SHUT_RD)  # wakes the reader, and sends nothing to the other side yet
    link.close()
