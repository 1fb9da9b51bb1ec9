"""Limits on connections: their number, in total and per address, and the time that they wait for a client.

uvicorn limits only the pause between two requests of a connection. A client that sends half a head, reads none of the
response, or sends the rest of a refused body byte by byte holds a descriptor and its buffers without end.
"""

from __future__ import annotations

import asyncio
from typing import Any

from django.conf import settings

from portal.common import trusted_proxies
from portal.common.monitoring import metrics
from portal.http.header_limits import BoundedHttpProtocol

# Seconds from the first byte of a request (or from the connection, for its first) to the end of its head.
HEAD_SECONDS = 20.0
# Seconds for which a client may read so little of a response that its buffer stays full.
WRITE_SECONDS = 60.0
_ANSWER = b"HTTP/1.1 %b\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b"
_LATE = b"The request did not arrive in time."
_FULL = b"The portal has as many connections as it takes. Try again in a minute."


class LimitedHttpProtocol(BoundedHttpProtocol):
    """Refuses connections beyond ``settings.CONNECTIONS`` and ``settings.CONNECTIONS_PER_ADDRESS``, and closes those
    that wait for their client too long."""

    _waiting: asyncio.TimerHandle | None = None
    _writing: asyncio.TimerHandle | None = None
    _refused = False

    # --- Number of connections ---------------------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self._is_one_too_many():
            self._refused = True
            metrics.REFUSED_REQUESTS.labels("too_many_connections").inc()
            self._end(b"503 Service Unavailable", _FULL)
        else:
            self._wait()

    def _is_one_too_many(self) -> bool:
        """Return whether this connection exceeds a limit; it is itself counted. A quarter is reserved for agents and
        proxies."""
        most = settings.CONNECTIONS
        if is_exempt(self.client):
            return len(self.connections) > most
        host = self.client and self.client[0]
        clients = [getattr(other, "client", None) for other in self.connections]
        same = sum(1 for client in clients if client and client[0] == host)
        return len(self.connections) > most - most // 4 or same > settings.CONNECTIONS_PER_ADDRESS

    # --- Timeouts ----------------------------------------------------------------------------------------------------
    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        if self.cycle is None or self.cycle.response_complete:
            self._wait()  # for a head, or for the end of a body that no code reads
        super().data_received(data)

    def on_message_begin(self) -> None:
        self._wait()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._stop_waiting()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._stop_waiting()
        super().on_message_complete()

    def _wait(self) -> None:
        """Start the timer. Bytes that arrive later do not extend it."""
        if self._waiting is None:
            self._waiting = self.loop.call_later(HEAD_SECONDS, self._too_late)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _too_late(self) -> None:
        self._waiting = None
        if self.cycle is None or self.cycle.response_complete:
            metrics.REFUSED_REQUESTS.labels("head_too_slow").inc()
            self._end(b"408 Request Timeout", _LATE)
        else:
            self.transport.abort()  # a response to an earlier request is in progress

    def _end(self, status: bytes, text: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(_ANSWER % (status, len(text), text))
            self.transport.close()

    # --- Clients that do not read responses --------------------------------------------------------------------------
    def pause_writing(self) -> None:
        super().pause_writing()
        self._writing = self._writing or self.loop.call_later(WRITE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        self._stop_writing()
        super().resume_writing()

    def _stop_writing(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._stop_writing()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self) -> None:
        self._stop_waiting()
        self._stop_writing()
        super().handle_websocket_upgrade()


def is_exempt(client: Any) -> bool:
    """Return whether many connections from this address are expected: a unix socket, this machine (which runs the
    agents of all jobs), a proxy that the operator trusts."""
    found = trusted_proxies.address(client[0]) if client else None
    return found is None or found.is_loopback or trusted_proxies.is_trusted(found, settings.TRUSTED_PROXIES)
