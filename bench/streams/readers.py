"""Websockets that read one log, many in one process: ``python -m bench.streams.readers FILE``.

The file is a ``Reading``. Prints "ready" when all are open and subscribed, and at the end the results as JSON. Frames
are decoded only on the first socket, so that the readers take little of the machine that they share with the server.
The sequence numbers at the beginning of a frame show whether each line arrived exactly once, and the time in the
frame's first line shows its delay.
"""

from __future__ import annotations

import base64
import json
import os
import re
import selectors
import socket
import struct
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

_TEXT = 0x1
_CLOSE = 0x8
_PING = 0x9
_RANGE = re.compile(rb'"lo":(\d+),"hi":(\d+)')
_SENT = re.compile(rb"at=(\d+\.\d+)")
_NUMBER = re.compile(rb"n=(\d+) ")
_HEAD_BYTES = 512
_RECEIVE = 1 << 20


@dataclass(frozen=True)
class Reading:
    """Specification of the readers.

    ``tokens``: one for each socket. Reads until line ``last`` or for so many seconds. ``frames``: the portal's, of many
    lines each; otherwise each message is a line (the peer).
    """

    port: int
    path: str
    job: str
    tokens: Sequence[str]
    last: int
    seconds: float
    frames: bool = True


@dataclass
class Seen:
    """Results of one socket. ``late``: for each frame, seconds from the sending of its first line."""

    lines: int = 0
    lost: int = 0
    doubled: int = 0
    hi: int = 0
    late: list[tuple[float, float]] = field(default_factory=list)


class Socket:
    """Minimal client: unmasked text frames from the server, and pings."""

    def __init__(self, reading: Reading, token: str, check: bool) -> None:
        self.seen = Seen()
        self._reading, self._check = reading, check
        self._buffer = bytearray()
        self.link = socket.create_connection(("127.0.0.1", reading.port), timeout=30)
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [
            f"GET {reading.path} HTTP/1.1",
            f"Host: 127.0.0.1:{reading.port}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {key}",
            "Sec-WebSocket-Version: 13",
            *([f"Authorization: Bearer {token}"] if token else []),
        ]
        self.link.sendall("\r\n".join([*lines, "", ""]).encode())
        while b"\r\n\r\n" not in self._buffer:
            if not (data := self.link.recv(4096)):
                raise ConnectionResetError("the handshake was not answered")
            self._buffer += data
        head, _, rest = bytes(self._buffer).partition(b"\r\n\r\n")
        if b" 101 " not in head.split(b"\r\n")[0]:
            raise ConnectionRefusedError(head.split(b"\r\n")[0].decode())
        self._buffer = bytearray(rest)
        if reading.frames:
            self._send(_TEXT, json.dumps({"op": "sub", "stream": "logs", "job": reading.job, "after": 0}).encode())
        self.link.setblocking(False)

    def read(self) -> None:
        """Process all data that has arrived."""
        while True:
            try:
                data = self.link.recv(_RECEIVE)
            except BlockingIOError:
                break
            if not data:
                raise ConnectionResetError("the server closed the socket")
            self._buffer += data
            if len(data) < _RECEIVE:
                break
        now = time.time()
        for code, message in self._messages():
            if code == _TEXT:
                self._take(message, now)
            elif code == _PING:
                self._send(0xA, bytes(message))
            elif code == _CLOSE:
                raise ConnectionResetError(f"the server closed the socket: {bytes(message[2:]).decode()}")

    def _messages(self) -> Iterator[tuple[int, memoryview]]:
        begin, view = 0, memoryview(bytes(self._buffer))
        while len(view) - begin >= 2:
            length, head = view[begin + 1] & 0x7F, 2
            if length == 126:
                head = 4
            elif length == 127:
                head = 10
            if len(view) - begin < head:
                break
            if head > 2:
                length = int.from_bytes(view[begin + 2 : begin + head], "big")
            if len(view) - begin < head + length:
                break
            yield view[begin] & 0xF, view[begin + head : begin + head + length]
            begin += head + length
        del self._buffer[:begin]

    def _take(self, message: memoryview, now: float) -> None:
        start = bytes(message[:_HEAD_BYTES])
        if self._reading.frames:
            if not start.startswith(b'{"t":"logs"'):
                return
            found = _RANGE.search(start)
            assert found is not None
            lo, hi = int(found[1]), int(found[2])
            if self._check:
                self._check_lines(message, lo, hi)
        else:
            number = _NUMBER.search(start)
            assert number is not None
            lo = hi = int(number[1])
        self.seen.lost += max(0, lo - self.seen.hi - 1)
        self.seen.doubled += max(0, self.seen.hi - lo + 1)
        self.seen.hi = max(self.seen.hi, hi)
        self.seen.lines += hi - lo + 1
        if sent := _SENT.search(start):
            self.seen.late.append((now, now - float(sent[1])))

    def _check_lines(self, message: memoryview, lo: int, hi: int) -> None:
        """Decode every line of the frame and check that its text carries the number with which it was sent."""
        numbers = [int(match[1]) for match in _NUMBER.finditer(bytes(message))]
        if numbers != list(range(lo, hi + 1)):
            raise RuntimeError(f"the frame of the lines {lo} to {hi} holds {numbers[:3]}... of {len(numbers)} lines")

    def _send(self, code: int, data: bytes) -> None:
        length = bytes([0x80 | len(data)]) if len(data) < 126 else bytes([0x80 | 126]) + struct.pack("!H", len(data))
        self.link.sendall(bytes([0x80 | code]) + length + bytes(4) + data)  # a mask of zeros changes nothing


def main(path: Path) -> None:
    reading = Reading(**json.loads(path.read_text()))
    sockets = [Socket(reading, token, check=not place) for place, token in enumerate(reading.tokens)]
    print("ready", flush=True)
    selector = selectors.DefaultSelector()
    for each in sockets:
        selector.register(each.link, selectors.EVENT_READ, each)
    deadline = time.monotonic() + reading.seconds
    errors: list[str] = []
    while selector.get_map() and time.monotonic() < deadline:
        for key, _events in selector.select(0.2):
            try:
                key.data.read()
            except (OSError, RuntimeError) as error:
                errors.append(str(error))
                selector.unregister(key.fileobj)
            else:
                if key.data.seen.hi >= reading.last:
                    selector.unregister(key.fileobj)
    print(json.dumps({"seen": [asdict(each.seen) for each in sockets], "errors": errors[:5]}), flush=True)


def to_json(reading: Reading) -> dict[str, Any]:
    return asdict(reading)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
