"""One websocket between a client and the server of a notebook.

A message is passed on after the one before it was taken, in both directions: a slow reader slows the sender. The
caller's right is checked again every few seconds, and at a notice of its account.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from websockets.client import ClientProtocol
from websockets.datastructures import Headers as HandshakeHeaders
from websockets.exceptions import InvalidState, ProtocolError
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.uri import WebSocketURI

from jobs.control.errors import ControlError
from jobs.control.streams import AsyncStream
from jobs.live.closes import code_after
from jobs.live.notebooks.answers import Message
from jobs.live.notebooks.callers import Caller
from jobs.live.notebooks.headers import Headers
from jobs.notebooks import access
from jobs.streams.tailer import in_thread, tailer
from portal.common.errors import NotSignedIn, RegattaError
from rbac.models import User
from rbac.socket_revocation import account_topic

NOT_SIGNED_IN, RIGHT_LOST, TOO_SLOW, SERVER_LOST, NOT_UNDERSTOOD = 4401, 4410, 4409, 4411, 1002
# The longest message of the server, as the portal's server accepts them of clients. It is in memory as a whole.
LONGEST_MESSAGE = 16 * 1024 * 1024
HANDSHAKE_SECONDS = 180.0
SEND_SECONDS = 60.0
CLOSE_SECONDS = 1.0
# A right that is lost without a notice ends the socket after this time.
RECHECK_SECONDS = 4.0
AFTER_RING_SECONDS = 0.5
USE_SECONDS = 20.0
_OF_MESSAGES = (Opcode.TEXT, Opcode.BINARY, Opcode.CONT)
_PASSED_ON_CODES = frozenset({1000, 1001, 1003, 1007, 1008, 1009, 1011, 1012, 1013, *range(3000, 5000)})

Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


@dataclass(frozen=True)
class Handshake:
    """The handshake with the server. ``target``: path and query. ``subprotocols``: those that the client offers."""

    host: str
    target: str
    headers: Headers
    subprotocols: Sequence[str]


class ServerRefused(Exception):
    """The server has refused the websocket, or has answered something else."""


class ServerSocket:
    """The server's end of the websocket."""

    def __init__(self, stream: AsyncStream, handshake: Handshake) -> None:
        parts = urlsplit(handshake.target)
        uri = WebSocketURI(False, handshake.host, 80, parts.path, parts.query)
        protocols: Any = list(handshake.subprotocols) or None
        self._stream, self._handshake = stream, handshake
        self._protocol = ClientProtocol(uri, subprotocols=protocols, max_size=LONGEST_MESSAGE)
        self._sending = asyncio.Lock()
        self._arrived: deque[Frame] = deque()

    @property
    def subprotocol(self) -> str | None:
        return self._protocol.subprotocol

    async def open(self) -> None:
        """Shake hands. Raises ServerRefused and ControlError."""
        request = self._protocol.connect()
        own = HandshakeHeaders(request.headers)
        for name, value in self._handshake.headers:
            if name != b"host":
                own[name.decode("latin-1")] = value.decode("latin-1")
        del own["Host"]
        own["Host"] = self._handshake.host
        request.headers = own
        self._protocol.send_request(request)
        await self._flush()
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                while self._protocol.state is State.CONNECTING and self._protocol.handshake_exc is None:
                    if not await self._fill():
                        break
        except TimeoutError:
            raise ServerRefused("no answer") from None
        if self._protocol.state is State.CONNECTING:
            raise ServerRefused(str(self._protocol.handshake_exc))

    async def send(self, message: Message) -> None:
        """Send a message of the client. Raises ControlError, and InvalidState after the server's close."""
        text = message.get("text")
        if text is not None:
            self._protocol.send_text(text.encode("utf-8", "surrogatepass"))
        else:
            self._protocol.send_binary(message.get("bytes") or b"")
        await self._flush()

    async def close(self, code: int) -> None:
        """Send a close, if the socket is open."""
        if self._protocol.state is State.OPEN:
            with contextlib.suppress(ControlError, InvalidState):
                self._protocol.send_close(code if code in _PASSED_ON_CODES else 1001)
                await self._flush()

    async def receive(self) -> bytes | str | int:
        """Return the next message, or the code of the close. Raises ControlError and UnicodeDecodeError."""
        message, is_text = bytearray(), False
        while True:
            while self._arrived:
                frame = self._arrived.popleft()
                if frame.opcode is Opcode.CLOSE:
                    close = self._protocol.close_rcvd
                    return close.code if close is not None and close.code in _PASSED_ON_CODES else 1000
                if frame.opcode in _OF_MESSAGES:
                    is_text = is_text or frame.opcode is Opcode.TEXT
                    message += frame.data
                    if frame.fin:
                        return message.decode() if is_text else bytes(message)
            if self._protocol.parser_exc is not None or not await self._fill():
                return NOT_UNDERSTOOD if isinstance(self._protocol.parser_exc, ProtocolError) else SERVER_LOST

    async def _fill(self) -> bool:
        """Read more bytes, and answer pings. Return whether there are any, and they are understood."""
        data = await self._stream.read()
        if data:
            self._protocol.receive_data(data)
        else:
            self._protocol.receive_eof()
        self._arrived.extend(event for event in self._protocol.events_received() if isinstance(event, Frame))
        await self._flush()
        return bool(self._arrived) or (bool(data) and self._protocol.parser_exc is None)

    async def _flush(self) -> None:
        async with self._sending:
            for piece in self._protocol.data_to_send():
                if piece:
                    await self._stream.write(piece, SEND_SECONDS)


class Relay:
    """Passes messages between the client and the server until one of them ends the socket, or the right to it ends."""

    def __init__(self, caller: Caller, user: User, server: ServerSocket, receive: Receive, send: Send) -> None:
        self._caller, self._user, self._server = caller, user, server
        self._receive, self._send = receive, send
        self._used_at = 0.0

    async def run(self) -> None:
        """Relay until the end, and close both ends."""
        tasks = [asyncio.ensure_future(work) for work in (self._from_client(), self._from_server(), self._guard())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            code = next(iter(done)).result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        # TimeoutError is an OSError: an end that takes nothing must not keep the other one open.
        with contextlib.suppress(OSError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._send({"type": "websocket.close", "code": code})
        with contextlib.suppress(OSError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._server.close(code)

    async def _from_client(self) -> int:
        while True:
            message = await self._receive()
            if message["type"] == "websocket.disconnect":
                return int(message.get("code") or 1005)
            try:
                await self._server.send(message)
            except (ControlError, InvalidState):
                return SERVER_LOST
            await self._note_use()

    async def _from_server(self) -> int:
        while True:
            try:
                message = await self._server.receive()
            except ControlError:
                return SERVER_LOST
            except UnicodeDecodeError:
                return NOT_UNDERSTOOD
            if isinstance(message, int):
                return message
            kind = "text" if isinstance(message, str) else "bytes"
            try:
                async with asyncio.timeout(SEND_SECONDS):
                    await self._send({"type": "websocket.send", kind: message})
            except TimeoutError:  # before OSError, of which it is one
                return TOO_SLOW
            except OSError:
                return 1005

    async def _guard(self) -> int:
        """Return a code once the caller may not use the notebook any more, or that cannot be checked."""
        with tailer().doorbell.subscribe(account_topic(self._user.pk)) as bell:
            rung = False
            while True:
                # A sign-out rings just before its session is removed: a second check follows soon after a ring.
                rung = await bell.wait(AFTER_RING_SECONDS if rung else RECHECK_SECONDS)
                try:
                    await in_thread(self._caller.admitted)
                except NotSignedIn:
                    return NOT_SIGNED_IN
                except RegattaError:
                    return RIGHT_LOST
                except Exception as error:  # noqa: BLE001  any internal error, such as an unavailable database
                    return code_after(error, "The caller of a notebook could not be checked.")

    async def _note_use(self) -> None:
        if time.monotonic() - self._used_at > USE_SECONDS:
            self._used_at = time.monotonic()
            await in_thread(access.note_use, self._caller.notebook)
