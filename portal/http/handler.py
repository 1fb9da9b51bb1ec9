"""Django's handler of requests over HTTP, with all synchronous work of a request in one turn of a thread.

The middleware of Django and of the portal is synchronous, and so are the views. ``ASGIHandler`` runs them as if they
were not, see ``portal.http.request_threads``. Here the event loop reads the body and sends the response; everything
between happens in a thread, including the signals by which Django returns connections to the database.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from asgiref.sync import sync_to_async
from django.core import signals
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.core.handlers.base import BaseHandler
from django.db import close_old_connections
from django.http import FileResponse, HttpRequest
from django.http.response import HttpResponseBase
from django.urls import ResolverMatch, set_script_prefix

from portal.common import request_load
from portal.common.monitoring import log_context
from portal.http.body_limits import Incoming, Message, Receive, TooSlow
from portal.http.request_streaming import DIRECT_BODY, Body, is_streamed, is_upload, lends_nothing
from portal.http.request_threads import in_thread

Send = Callable[[Message], Awaitable[None]]


class Handler(ASGIHandler):
    """Views read streamed bodies themselves; all others are read before, within ``body_limits``."""

    def __init__(self) -> None:
        # Not that of ASGIHandler, which loads the middleware as asynchronous.
        BaseHandler.__init__(self)
        self.load_middleware(is_async=False)

    async def handle(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        streamed = is_streamed(scope)
        incoming: Body | Incoming = (
            Body(receive, (scope.get("extensions") or {}).get(DIRECT_BODY, lends_nothing))
            if streamed
            else Incoming(scope, receive)
        )
        try:
            body = await self.read_body(incoming)
        except RequestAborted:
            return
        except TooSlow:
            headers = [(b"connection", b"close"), (b"content-length", b"0")]
            await send({"type": "http.response.start", "status": HTTPStatus.REQUEST_TIMEOUT, "headers": headers})
            await send({"type": "http.response.body"})
            return
        try:
            # An upload is not counted as load: its thread mostly waits for the client.
            with contextlib.nullcontext() if is_upload(scope) else request_load.OF_PROCESS.request():
                response = await in_thread(self._response, scope, body)
            if response.streaming:
                await self._stream(response, incoming, send)
            else:
                await self.send_response(response, send)
        finally:
            body.close()

    def _response(self, scope: dict[str, Any], body: Any) -> HttpResponseBase:
        """Return the response. A client that reads it slowly holds no connection to the database."""
        set_script_prefix(get_script_prefix(scope))
        signals.request_started.send(sender=self.__class__, scope=scope)
        request, refusal = self.create_request(scope, body)
        response: HttpResponseBase | None = refusal if request is None else self.get_response(request)
        assert response is not None  # noqa: S101  one of both is
        response._handler_class = self.__class__  # type: ignore[attr-defined]  # the sender of request_finished
        if isinstance(response, FileResponse):
            response.block_size = self.chunk_size
        if response.streaming:
            close_old_connections()  # at its end, the signal of Django runs in another thread
        else:
            response.close()  # its content stays
        return response

    async def _stream(self, response: HttpResponseBase, receive: Receive, send: Send) -> None:
        """Send a streaming response until its end, or until the client has disconnected."""
        sending = asyncio.create_task(self.send_response(response, send))
        disconnect = asyncio.create_task(_disconnected(receive))
        try:
            await asyncio.wait((sending, disconnect), return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            for task in (sending, disconnect):
                task.cancel()
            await asyncio.gather(sending, disconnect, return_exceptions=True)
            await sync_to_async(response.close)()

    def resolve_request(self, request: HttpRequest) -> ResolverMatch:
        """Resolve the route, and name it in log lines and metrics."""
        match: ResolverMatch = super().resolve_request(request)
        log_context.note(route=match.view_name, template=match.route, job=str(match.kwargs.get("job_id", "")))
        return match

    async def read_body(self, receive: Receive) -> Any:
        return await receive.body() if isinstance(receive, Incoming) else receive


async def _disconnected(receive: Receive) -> None:
    await receive()
