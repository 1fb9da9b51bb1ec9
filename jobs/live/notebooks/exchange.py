"""One request over HTTP to the server of a notebook.

Bodies pass piece by piece in both directions; each side waits while the other does not read. A client that leaves ends
the request at the server. The caller's right is checked again while a request lasts.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import h11

from jobs.control.errors import ControlError
from jobs.live.notebooks.addresses import location_within
from jobs.live.notebooks.answers import BadGateway, Message
from jobs.live.notebooks.callers import Caller
from jobs.live.notebooks.cross_site import SAFE
from jobs.live.notebooks.headers import Headers, from_server, value_of
from jobs.live.notebooks.upstream import Broken, Connection, Pool
from jobs.messages import notebooks as messages
from jobs.notebooks.access import Target
from jobs.streams.tailer import in_thread, tailer
from portal.common.errors import ValidationFailed
from rbac.models import User
from rbac.socket_revocation import account_topic

# The time until the head of the response: a kernel may take a minute to start, and requests for outputs wait.
HEAD_SECONDS = 180.0
# The longest pause inside the body of a response, and of a request.
BODY_SECONDS = 300.0
UPLOAD_SECONDS = 60.0
# A right that is lost without a notice ends the request after this time.
RECHECK_SECONDS, AFTER_RING_SECONDS = 4.0, 0.5
_STATUSES = range(200, 600)

Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


@dataclass(frozen=True)
class Request:
    """A request to the server. ``target``: path and query. ``policy``: the security policy of the response."""

    method: str
    target: str
    headers: Headers
    host: str
    policy: str


class Left(Exception):
    """The client has left, or its right was lost after the response had begun."""


class Exchange:
    """Passes one request to the server, and its response to the client."""

    def __init__(
        self, pool: Pool, target: Target, request: Request, receive: Receive, send: Send, caller: Caller, user: User
    ) -> None:
        self._pool, self._target, self._request = pool, target, request
        self._receive, self._send = receive, send
        self._caller, self._user = caller, user
        self._body_begun = self.answered = False

    async def run(self) -> None:
        """Answer the client. Raises BadGateway, ValidationFailed and TooManyRequests while nothing was ``answered``.

        If the server breaks off afterwards, the response stays incomplete, and the client notices that.
        """
        try:
            if self._request.method in SAFE and await self._attempt(fresh=False):
                return
            await self._attempt(fresh=True)
        except (ControlError, Broken) as error:
            if not self.answered:
                raise BadGateway(messages.NOTEBOOK_SERVER_SILENT()) from error
        except h11.LocalProtocolError as error:
            if not self.answered:
                raise ValidationFailed({"request": [messages.NOTEBOOK_ADDRESS_INVALID()]}) from error
        except Left:
            pass

    async def _attempt(self, *, fresh: bool) -> bool:
        """Return whether the request was answered; False if a kept connection turned out to be closed."""
        connection = await self._pool.take(self._target, fresh=fresh)
        done = False
        try:
            await self._exchange(connection)
            done = True
        except (ControlError, Broken):
            if connection.used and not self.answered and not self._body_begun:
                return False
            raise
        finally:
            if done:
                await self._pool.give_back(self._target, connection)
            else:
                await self._pool.drop(self._target, connection)
        return True

    async def _exchange(self, connection: Connection) -> None:
        request = self._request
        await connection.send(h11.Request(method=request.method, target=request.target, headers=request.headers))
        if request.method in SAFE:
            await connection.send(h11.EndOfMessage())
        upload = asyncio.ensure_future(self._watch() if request.method in SAFE else self._upload(connection))
        download = asyncio.ensure_future(self._download(connection))
        guard = asyncio.ensure_future(self._guard())
        tasks = (download, upload, guard)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if not download.done() and upload.done() and isinstance(upload.exception(), ControlError):
                # The server has ended its side early, and may have answered why.
                await asyncio.wait((download, guard), timeout=UPLOAD_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            next(task for task in tasks if task.done()).result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _guard(self) -> None:
        """Raise once the caller may not use the notebook any more, or that cannot be checked."""
        with tailer().doorbell.subscribe(account_topic(self._user.pk)) as bell:
            rung = False
            while True:
                # A sign-out rings just before its session is removed: a second check follows soon after a ring.
                rung = await bell.wait(AFTER_RING_SECONDS if rung else RECHECK_SECONDS)
                try:
                    await in_thread(self._caller.admitted)
                except Exception:
                    if self.answered:
                        raise Left from None  # the response stays incomplete
                    raise

    # --- To the server -----------------------------------------------------------------------------------------------
    async def _upload(self, connection: Connection) -> None:
        """Pass on the body, then wait until the client leaves. Raises ControlError and Left."""
        more = True
        while more:
            try:
                async with asyncio.timeout(UPLOAD_SECONDS):
                    message = await self._receive()
            except TimeoutError:
                raise Left from None
            if message["type"] == "http.disconnect":
                raise Left
            if piece := message.get("body", b""):
                self._body_begun = True
                await connection.send(h11.Data(data=piece))
            more = message.get("more_body", False)
        await connection.send(h11.EndOfMessage())
        await self._watch()

    async def _watch(self) -> None:
        """Wait until the client leaves; a body that a request without one has is not read. Raises Left."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        raise Left

    # --- To the client -----------------------------------------------------------------------------------------------
    async def _download(self, connection: Connection) -> None:
        """Pass on the response. Raises ControlError, Broken and BadGateway."""
        response = await connection.receive(HEAD_SECONDS)
        while isinstance(response, h11.InformationalResponse):
            response = await connection.receive(HEAD_SECONDS)
        if not isinstance(response, h11.Response) or response.status_code not in _STATUSES:
            raise Broken("the server has closed the connection")
        received = [(bytes(name), bytes(value)) for name, value in response.headers]
        headers = from_server(received, self._request.policy)
        if location := value_of(received, b"location"):
            headers.append((b"location", self._within(location).encode()))
        self.answered = True
        await self._send({"type": "http.response.start", "status": response.status_code, "headers": headers})
        while isinstance(event := await connection.receive(BODY_SECONDS), h11.Data):
            await self._send({"type": "http.response.body", "body": bytes(event.data), "more_body": True})
        if not isinstance(event, h11.EndOfMessage):
            raise Broken("the server has closed the connection")
        with contextlib.suppress(OSError):
            await self._send({"type": "http.response.body", "body": b""})

    def _within(self, location: str) -> str:
        """Return the path of a redirect. Raises BadGateway for one that leaves the notebook."""
        found = location_within(location, self._target.base_url, self._request.host)
        if found is None:
            raise BadGateway(messages.NOTEBOOK_SERVER_REDIRECTS())
        return found
