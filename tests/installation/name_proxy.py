"""A proxy that connects to names which no name server knows, for clients that use HTTPS_PROXY."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress

_REQUEST = re.compile(rb"CONNECT (?P<name>[^: ]+):(?P<port>\d+) ")
_BLOCK = 65536


class NameProxy:
    """Answers CONNECT requests. ``addresses``: host and port by name."""

    def __init__(self, addresses: Mapping[str, tuple[str, int]]) -> None:
        self._addresses = dict(addresses)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                received = client.recv(_BLOCK)
                if not received:
                    return
                head += received
            found = _REQUEST.match(head)
            address = self._addresses.get(found["name"].decode()) if found else None
            try:
                server = socket.create_connection(address, timeout=30) if address else None
            except OSError:
                server = None
            if server is None:
                client.sendall(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
                return
            client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            server.settimeout(None)
            with server:
                back = threading.Thread(target=_copy, args=(server, client), daemon=True)
                back.start()
                _copy(client, server)
                back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while received := source.recv(_BLOCK):
            target.sendall(received)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
