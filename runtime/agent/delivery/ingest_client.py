"""Client of the portal's ingest: one call, as defined in ``runtime.contract``, and the meaning of its answer.

Proxies between agent and portal send statuses of their own: 404 while a route is reloaded, 413 for a body over their
limit, 200 with a sign-in page. Only the portal's own answers are accepted as such: a refusal is a problem document with
its type and code, and accepted data is acknowledged in JSON.
"""

from __future__ import annotations

import http.client
import json
import math
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from runtime import contract

TIMEOUT_SECONDS = 30.0
CONNECT_SECONDS = 5.0


@dataclass(frozen=True)
class Taken:
    """The portal has accepted the data."""

    body: Mapping[str, Any]

    @property
    def epoch(self) -> str:
        """Return ``contract.EPOCH``; empty if the portal's database was never restored."""
        return _text(self.body.get(contract.EPOCH))

    @property
    def pace(self) -> float:
        """Return ``contract.PACE`` in seconds, at most BATCH_SECONDS_LIMIT; 0 if the portal names no age."""
        given = self.body.get(contract.PACE)
        if not isinstance(given, int | float) or math.isnan(given):
            return 0.0
        return min(contract.BATCH_SECONDS_LIMIT, max(0.0, given))


@dataclass(frozen=True)
class Gap:
    """The batch begins too late: the portal has entries up to ``last``."""

    last: int
    epoch: str = ""


@dataclass(frozen=True)
class Replaced:
    """The attempt is over for the portal, which accepts nothing more of it."""

    why: str


@dataclass(frozen=True)
class Missing:
    """The portal has no such attempt. The answer may be temporary, as while its database is restored."""

    why: str


@dataclass(frozen=True)
class Refused:
    """The portal itself refuses the data, now and on every retry. ``fields``: the errors by part of the body."""

    status: int
    why: str
    fields: Mapping[str, Any]


@dataclass(frozen=True)
class Failed:
    """Not accepted, or not known to be accepted. ``status`` is 0 if there was no answer."""

    status: int
    why: str


Answer = Taken | Gap | Replaced | Missing | Refused | Failed

# How long the portal must answer that it has no such attempt before the process is ended: the answer may be temporary.
MISSING_SECONDS = 60.0
# Statuses of the portal's own refusals that a retry would not change.
_REFUSALS = (400, 403, 409, 411, 413, 415, 422)
_PROBLEM = "urn:regatta:problem:"
# Bytes of an answer that are read. The portal's answers are much shorter; a proxy's page may have any length.
_LONGEST_ANSWER = 1024 * 1024
_LONGEST_WHY = 500


class Persistence:
    """Whether the same answer has been recorded for ``seconds``, without any other in between."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._since: float | None = None

    def persists(self) -> bool:
        """Record the answer again. Return whether it has persisted for long enough."""
        if self._since is None:
            self._since = self._clock()
        return self._clock() >= self._since + self._seconds

    def reset(self) -> None:
        """Record another answer: the time starts again with the next one."""
        self._since = None


class Ingest:
    """Keep-alive connection to one attempt's ingest. For one thread."""

    def __init__(self, url: str, attempt_id: str, token: str, traceparent: str = "") -> None:
        self._url = urlsplit(url)
        self._base = f"{self._url.path.rstrip('/')}/ingest/v1/attempts/{attempt_id}/"
        self._headers = headers_of(token, traceparent)
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
            content = response.read(_LONGEST_ANSWER)
            if not response.isclosed():
                self.close()  # otherwise the rest of it would be read as the next answer
            return meaning(response.status, content)
        except (OSError, http.client.HTTPException, ValueError) as error:
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


def headers_of(token: str, traceparent: str) -> dict[str, str]:
    """Return the headers of every request: the attempt's token, and its trace if there is one. Pure."""
    return {"Authorization": f"Bearer {token}", **({"traceparent": traceparent} if traceparent else {})}


def meaning(status: int, content: bytes) -> Answer:
    """Return the meaning of an answer. Pure."""
    body = _json(content)
    if 200 <= status < 300:
        return Failed(status, "what answers in the portal's place sends no JSON") if body is None else Taken(body)
    detail = str((body or {}).get("detail") or f"status {status}")[:_LONGEST_WHY]
    match status, _code(body or {}):
        case (409, "gap"):
            last = whole((body or {}).get("last"))
            return Failed(status, detail) if last is None else Gap(last, _text((body or {}).get(contract.EPOCH)))
        case (409, "stale_attempt"):
            return Replaced(detail)
        case (404, "not_found"):
            return Missing(detail)
        case (status, code) if code and status in _REFUSALS:
            fields = (body or {}).get("errors")
            return Refused(status, detail, fields if isinstance(fields, dict) else {})
        case _:
            return Failed(status, detail)


def whole(value: Any) -> int | None:
    """Return a number of entries, or None for any other value."""
    return value if type(value) is int and value >= 0 else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _code(body: Mapping[str, Any]) -> str:
    """Return the code of one of the portal's own problem documents; empty for any other answer."""
    code = body.get("code")
    return code if isinstance(code, str) and body.get("type") == f"{_PROBLEM}{code}" else ""


def _json(content: bytes) -> Mapping[str, Any] | None:
    """Return a JSON object, or None for anything else."""
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None
