"""A server of a notebook that answers each request as its path says, also with what no server should send."""

from __future__ import annotations

import base64
import hashlib
import json
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

OK = b"HTTP/1.1 200 OK\r\n"
EMPTY = b"Content-Length: 0\r\n\r\n"
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
PIECE = bytes(64 * 1024)


@dataclass
class Seen:
    """A request as the server has read it."""

    method: str
    target: str
    headers: dict[str, str]
    connection: int


@dataclass
class HostileServer:
    """``pages``: further responses by the last segment of the path. ``sent``: the bytes that floods have got rid of."""

    pages: dict[str, bytes] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    sent: int = 0
    bodies: int = 0
    connections: int = 0

    def serve(self, link: socket.socket) -> None:
        """Serve one connection to its end."""
        self.connections += 1
        number, buffer = self.connections, b""
        while True:
            while b"\r\n\r\n" not in buffer:
                if not (data := link.recv(65536)):
                    return
                buffer += data
            head, _, buffer = buffer.partition(b"\r\n\r\n")
            line, *fields = head.decode("latin-1").split("\r\n")
            method, target, _ = line.split(" ", 2)
            headers = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in fields)}
            request = Seen(method, target, headers, number)
            self.seen.append(request)
            name = target.partition("?")[0].rpartition("/")[2]
            if headers.get("upgrade", "").lower() == "websocket":
                self._socket(link, request, name)
                return
            buffer = self._body(link, headers, buffer)
            if name in self.pages:
                link.sendall(self.pages[name])
                if b"Content-Length" not in self.pages[name]:
                    return
            elif not _PAGES.get(name, HostileServer.echo)(self, link, request):
                return

    def _body(self, link: socket.socket, headers: Mapping[str, str], buffer: bytes) -> bytes:
        """Read the body, and return what follows it."""
        if headers.get("transfer-encoding") == "chunked":
            while b"0\r\n\r\n" not in buffer:
                buffer += link.recv(65536)
            self.bodies += len(buffer)
            return b""
        left = int(headers.get("content-length", 0))
        self.bodies += left
        while len(buffer) < left:
            left -= len(buffer)
            if not (buffer := link.recv(65536)):
                return b""
        return buffer[left:]

    # --- Pages: each returns whether the connection goes on --------------------------------------------------------
    def echo(self, link: socket.socket, request: Seen) -> bool:
        body = json.dumps({"target": request.target, "headers": request.headers, "connection": request.connection})
        length = 0 if request.method == "HEAD" else len(body)
        content = body.encode()[:length]
        link.sendall(OK + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + content)
        return True

    def flood(self, link: socket.socket, request: Seen) -> bool:
        """Send 1 GB."""
        link.sendall(OK + b"Content-Length: 1073741824\r\n\r\n")
        for _ in range(2**14):
            link.sendall(PIECE)
            self.sent += len(PIECE)
        return True

    def silent(self, link: socket.socket, request: Seen) -> bool:
        link.recv(1)
        return False

    def unfinished(self, link: socket.socket, request: Seen) -> bool:
        """Send half of the body, and nothing more."""
        link.sendall(OK + b"Content-Length: 10\r\n\r\nhello")
        link.recv(1)
        return False

    def half(self, link: socket.socket, request: Seen) -> bool:
        """End one direction after half of the body, and wait for the end of the other."""
        link.sendall(OK + b"Content-Length: 10\r\n\r\nhello")
        link.shutdown(socket.SHUT_WR)
        link.recv(1)
        return False

    def _socket(self, link: socket.socket, request: Seen, name: str) -> None:
        if name == "refuses":
            link.sendall(b"HTTP/1.1 404 Not Found\r\n" + EMPTY)
            return
        key = request.headers["sec-websocket-key"].encode()
        accept = base64.b64encode(hashlib.sha1(key + _GUID).digest())
        offered = request.headers.get("sec-websocket-protocol", "").partition(",")[0].strip()
        chosen = f"Sec-WebSocket-Protocol: {offered}\r\n".encode() if offered else b""
        link.sendall(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + accept + b"\r\n" + chosen + b"\r\n"
        )
        _SOCKETS.get(name, echo_frames)(link)


def frame(opcode: int, data: bytes, *, fin: bool = True) -> bytes:
    """Return a frame of a server."""
    length = len(data)
    size = (
        bytes([length])
        if length < 126
        else b"\x7e" + length.to_bytes(2)
        if length < 65536
        else b"\x7f" + length.to_bytes(8)
    )
    return bytes([opcode | (0x80 if fin else 0)]) + size + data


def echo_frames(link: socket.socket) -> None:
    """Send each message back, and close as the client does."""
    reader = link.makefile("rb")
    while head := reader.read(2):
        opcode, length = head[0] & 15, head[1] & 127
        if length >= 126:
            length = int.from_bytes(reader.read(2 if length == 126 else 8))
        mask, data = reader.read(4), reader.read(length)
        whole = mask * (length // 4 + 1)
        plain = int.from_bytes(data) ^ int.from_bytes(whole[:length])
        link.sendall(frame(opcode, plain.to_bytes(length)))
        if opcode == 8:
            return


def too_long(link: socket.socket) -> None:
    link.sendall(b"\x82\x7f" + (2**40).to_bytes(8))
    link.recv(1)


def fragments(link: socket.socket) -> None:
    link.sendall(frame(1, b"one ", fin=False) + frame(9, b"ping") + frame(0, b"two"))
    link.recv(1)


def not_text(link: socket.socket) -> None:
    link.sendall(frame(1, b"\xff\xfe"))
    link.recv(1)


def garbage(link: socket.socket) -> None:
    link.sendall(b"\xff" * 100)
    link.recv(1)


def closes(link: socket.socket) -> None:
    link.sendall(frame(8, (4321).to_bytes(2) + b"why"))
    link.recv(1)


_SOCKETS: Mapping[str, Callable[[socket.socket], None]] = {
    "too_long": too_long,
    "fragments": fragments,
    "not_text": not_text,
    "garbage": garbage,
    "closes": closes,
}
_PAGES: Mapping[str, Callable[[HostileServer, socket.socket, Seen], bool]] = {
    "flood": HostileServer.flood,
    "silent": HostileServer.silent,
    "unfinished": HostileServer.unfinished,
    "half": HostileServer.half,
}
