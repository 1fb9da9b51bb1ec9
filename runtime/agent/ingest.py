"""One call to the portal's ingest, as written in ``runtime.contract``, and what its answer means."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO
from urllib.parse import urlsplit

TIMEOUT_SECONDS = 30.0
CONNECT_SECONDS = 5.0


@dataclass(frozen=True)
class Taken:
    """The portal has it."""

    body: Mapping[str, Any]


@dataclass(frozen=True)
class Gap:
    """The batch begins too late: the portal has entries up to ``last``."""

    last: int


@dataclass(frozen=True)
class Replaced:
    """The attempt is over for the portal; it takes no more of it."""

    why: str


@dataclass(frozen=True)
class Failed:
    """Not taken, or not known to be. ``status`` is 0 where there was no answer."""

    status: int
    why: str


Answer = Taken | Gap | Replaced | Failed


class Ingest:
    """A kept-alive connection to one attempt's ingest. For one thread."""

    def __init__(self, url: str, attempt_id: str, token: str) -> None:
        self._url = urlsplit(url)
        self._base = f"{self._url.path.rstrip('/')}/ingest/v1/attempts/{attempt_id}/"
        self._headers = {"Authorization": f"Bearer {token}"}
        self._connection: http.client.HTTPConnection | None = None

    def post_json(self, call: str, body: bytes) -> Answer:
        return self._post(call, body, {"Content-Type": "application/json"})

    def post_file(self, call: str, file: BinaryIO, size: int) -> Answer:
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
        return self._post(call, file, headers)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _post(self, call: str, body: bytes | BinaryIO, headers: Mapping[str, str]) -> Answer:
        try:
            connection = self._connected()
            connection.request("POST", self._base + call, body, {**self._headers, **headers})
            response = connection.getresponse()
            return _meaning(response.status, _json(response.read()))
        except (OSError, http.client.HTTPException) as error:
            self.close()
            return Failed(0, f"the portal did not answer ({error})")

    def _connected(self) -> http.client.HTTPConnection:
        if self._connection is None:
            kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
            connection = kind(self._url.hostname or "", self._url.port, timeout=CONNECT_SECONDS)
            connection.connect()
            connection.sock.settimeout(TIMEOUT_SECONDS)
            # Small requests follow each other; waiting to fill a packet would cost 40 ms each.
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connection = connection
        return self._connection


def _meaning(status: int, body: Mapping[str, Any]) -> Answer:
    detail = str(body.get("detail") or f"status {status}")
    match status, body.get("code"):
        case (status, _) if 200 <= status < 300:
            return Taken(body)
        case (409, "gap"):
            return Gap(int(body.get("last", 0)))
        case (404, _) | (409, "stale_attempt"):
            return Replaced(detail)
        case _:
            return Failed(status, detail)


def _json(raw: bytes) -> Mapping[str, Any]:
    try:
        body = json.loads(raw or b"{}")
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}
