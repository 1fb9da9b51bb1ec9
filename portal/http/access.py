"""ASGI middleware around every request and websocket: request id, metrics, and a line of the access log.

It sees the end of streamed responses, requests that Django never sees (a body that arrives too slowly), and websockets.
A line names the route, never the path: a path can hold names, and a query string can hold secrets.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from django.conf import settings

from portal.common.monitoring import log_context, metrics, request_ids
from portal.common.monitoring.log_context import LogContext
from portal.common.tracing import recording, request_spans

Message = Mapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[dict[str, Any], Receive, Send], Awaitable[None]]

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
# Codes of refusals outside of views, where no problem document is made.
_REASONS = {408: "too_slow"}
# Probes arrive every few seconds.
_PROBES = frozenset({"healthz", "readyz"})
_STATIC = "static"
_WEBSOCKET = "websocket"
ABORTED = "aborted"
CLIENT = "client"
_HEADER = request_ids.HEADER.lower().encode()
_TRACE_HEADER = request_spans.HEADER.encode()
_log = logging.getLogger("portal.access")


class Access:
    """Middleware that measures and logs what ``application`` answers."""

    def __init__(self, application: Application, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._application, self._clock = application, clock

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        exchange = _KINDS.get(scope["type"])
        if exchange is None:
            await self._application(scope, receive, send)
            return
        method = scope["method"] if scope.get("method") in _METHODS else metrics.OTHER
        with log_context.use(request_id=_request_id(scope), method=method, **_trace(scope)) as context:
            watched = exchange(scope, context, receive, send)
            began = self._clock()
            try:
                await self._application(scope, watched.receive, watched.send)
            finally:
                watched.end(self._clock() - began)


class _Request:
    """The messages of one HTTP request."""

    def __init__(self, scope: dict[str, Any], context: LogContext, receive: Receive, send: Send) -> None:
        self.receive = receive
        self._context, self._send = context, send
        self._status = 0
        self._is_static = scope["path"].startswith(settings.STATIC_URL)
        metrics.REQUESTS_IN_PROGRESS.inc()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            headers = message.get("headers", ())
            if not any(name.lower() == _HEADER for name, _ in headers):
                message = {**message, "headers": [*headers, (_HEADER, self._context.request_id.encode())]}
        await self._send(message)

    def end(self, seconds: float) -> None:
        context, status = self._context, self._status
        context.route = context.route or (_STATIC if self._is_static else metrics.OTHER)
        metrics.REQUESTS_IN_PROGRESS.dec()
        metrics.REQUESTS.labels(context.route, context.method, status_class(status)).inc()
        metrics.REQUEST_SECONDS.labels(context.route, context.method).observe(seconds)
        if refusal := context.refusal or _REASONS.get(status, ""):
            metrics.REFUSED_REQUESTS.labels(refusal).inc()
        level = logging.DEBUG if context.route in _PROBES else logging.INFO
        _write(level, context, status, seconds)
        if span := request_spans.finished(context, status, seconds):
            recording.record(span)


class _Websocket:
    """The messages of one websocket."""

    def __init__(self, scope: dict[str, Any], context: LogContext, receive: Receive, send: Send) -> None:
        context.method, context.route = "GET", _WEBSOCKET
        self._context, self._receive, self._send = context, receive, send
        self._code = CLIENT
        metrics.WEBSOCKETS_OPEN.inc()

    async def receive(self) -> Message:
        return await self._receive()

    async def send(self, message: Message) -> None:
        if message["type"] == "websocket.close":
            self._code = str(message.get("code") or 1000)
        await self._send(message)

    def end(self, seconds: float) -> None:
        metrics.WEBSOCKETS_OPEN.dec()
        metrics.WEBSOCKET_CLOSES.labels(self._code).inc()
        _write(logging.INFO, self._context, self._code, seconds)


_KINDS: Mapping[str, type[_Request | _Websocket]] = {"http": _Request, "websocket": _Websocket}


def status_class(status: int) -> str:
    """Return ``2xx`` for 200; ``ABORTED`` for 0, a request without a response. Pure."""
    return f"{status // 100}xx" if status else ABORTED


def _request_id(scope: Mapping[str, Any]) -> str:
    return request_ids.choose(_peer(scope), _header(scope, _HEADER), settings.TRUSTED_PROXIES)


def _trace(scope: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of the request's trace for the log context; none if this process records nothing."""
    if recording.current() is None or scope["type"] != "http":
        return {}
    given, start = _header(scope, _TRACE_HEADER), time.time_ns()
    trace = request_spans.begin(_peer(scope), scope["path"], given, settings.TRUSTED_PROXIES, start)
    sampled = trace is not None and trace.context.sampled
    return {"trace": trace, "trace_id": trace.context.trace_id if trace and sampled else ""}


def _peer(scope: Mapping[str, Any]) -> str:
    return str((scope.get("client") or ("",))[0])


def _header(scope: Mapping[str, Any], name: bytes) -> str:
    given = [value for each, value in scope["headers"] if each == name]
    return given[0].decode("latin-1") if given else ""


def _write(level: int, context: LogContext, status: int | str, seconds: float) -> None:
    if _log.isEnabledFor(level):
        extra = {"status": status, "duration": round(seconds, 6)}
        _log.log(level, "%s %s %s in %.3f s", context.method, context.route, status, seconds, extra=extra)
