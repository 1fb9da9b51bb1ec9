"""Sends an agent's data to the portal: numbered lines and points, over one persistent connection."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

_TIMEOUT_SECONDS = 60.0


class Sender:
    """Sender for one replica of an attempt."""

    def __init__(self, address: str, attempt: str, token: str, replica: str = "trainer-0") -> None:
        self._address, self._replica = urlsplit(address), replica
        self._path = f"/ingest/v1/attempts/{attempt}"
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._connection: http.client.HTTPConnection | None = None
        self._next = {"lines": 1, "points": 1}

    def lines(self, rows: Sequence[tuple[float, str, str]]) -> None:
        """Send lines (unix time, stream, text), numbered after those sent before."""
        self._send("logs", "lines", rows)

    def points(self, rows: Sequence[tuple[float, float, str, float]]) -> None:
        """Send points (unix time, step, key, value), numbered after those sent before."""
        self._send("metrics", "points", rows)

    def skip(self, field: str, count: int) -> None:
        """Advance the numbering by ``count``: the portal has those entries already."""
        self._next[field] += count

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _send(self, call: str, field: str, rows: Sequence[Sequence[Any]]) -> None:
        body: Mapping[str, Any] = {"replica": self._replica, "first": self._next[field], field: rows}
        self.post(call, json.dumps(body).encode())
        self._next[field] += len(rows)

    def post(self, call: str, body: bytes) -> None:
        """Send a request. Raises RuntimeError if the portal refuses it."""
        connection = self._connected()
        connection.request("POST", f"{self._path}/{call}", body, self._headers)
        answer = connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise RuntimeError(
                f"{call} was answered with status {answer.status}: {content[:200].decode(errors='replace')}"
            )

    def _connected(self) -> http.client.HTTPConnection:
        if self._connection is None:
            self._connection = http.client.HTTPConnection(
                self._address.hostname or "", self._address.port, timeout=_TIMEOUT_SECONDS
            )
            self._connection.connect()
            self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._connection
