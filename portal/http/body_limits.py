"""Limits on request bodies, per caller, decided before a body is read.

Django's handler stores a whole body, on the disk when it is large, before it looks at the route and the credentials.
Here each request gets a limit first: little for anonymous callers, DATA_UPLOAD_MAX_MEMORY_SIZE for callers with a
session or a token. A larger body is not read: a view that reads it raises RequestDataTooBig, which is answered as 413.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from http.cookies import CookieError, SimpleCookie
from typing import IO, Any

from django.conf import settings
from django.core.exceptions import RequestAborted, RequestDataTooBig
from django.db import DatabaseError, close_old_connections

from portal.common.clock import now
from portal.http.request_threads import in_thread
from rbac.selectors import token_behind
from rbac.sign_in.sessions import is_signed_in

# Bytes of a body without a valid session or token: a sign-in form has less than one KiB.
ANONYMOUS_LIMIT = 64 * 1024
# Seconds in which a body must arrive, and the bytes of its limit that allow one second more.
BODY_SECONDS = 30.0
SLOWEST_BYTES = 16 * 1024

Message = Mapping[str, Any]
Receive = Callable[[], Awaitable[Message]]


class TooSlow(Exception):
    """The body did not arrive in time."""


class Unread:
    """A body that was not read: larger than its sender may send, or of a sender that could not be looked up. Reading it
    raises the error."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error or RequestDataTooBig("The body is larger than this caller may send.")

    def read(self, size: int = -1) -> bytes:
        raise self._error

    readline = read

    def close(self) -> None:
        pass


class Incoming:
    """The ASGI messages of one request: ``body`` reads its body; a call waits until the client has disconnected."""

    def __init__(self, scope: Message, receive: Receive) -> None:
        self._scope = scope
        self._receive = receive

    async def __call__(self) -> Message:
        while (message := await self._receive())["type"] != "http.disconnect":
            pass  # the rest of a body that was not read
        return message

    async def body(self) -> IO[bytes] | Unread:
        """Return the body as a file, or Unread when it exceeds the limit of its sender, or while the database is lost.

        Raises RequestAborted when the client disconnects, and TooSlow.
        """
        length = content_length(self._scope)
        try:
            limit = await _limit_of(self._scope, length)
        except DatabaseError as error:
            # Outside of Django's handlers it would be a 500; the view meets it when it looks up the caller itself.
            return Unread(error)
        if length is not None and length > limit:
            return Unread()
        with contextlib.ExitStack() as closing:
            file = closing.enter_context(tempfile.SpooledTemporaryFile(settings.FILE_UPLOAD_MAX_MEMORY_SIZE))
            try:
                async with asyncio.timeout(BODY_SECONDS + limit / SLOWEST_BYTES):
                    fits = await self._fill(file, limit)
            except TimeoutError:
                raise TooSlow from None
            if not fits:
                return Unread()
            closing.pop_all()  # the request owns it from here on
        file.seek(0)
        return file

    async def _fill(self, file: Any, limit: int) -> bool:
        """Return whether the whole body is within ``limit`` bytes. Raises RequestAborted."""
        left, more = limit, True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise RequestAborted
            piece = message.get("body", b"")
            left -= len(piece)
            if left < 0:
                return False
            file.write(piece)
            more = message.get("more_body", False)
        return True


def content_length(scope: Message) -> int | None:
    """Return the declared length; None without one."""
    value = _header(scope, b"content-length")
    return int(value) if value.isascii() and value.isdigit() else None


async def _limit_of(scope: Message, length: int | None) -> int:
    """Return how many bytes the caller may send. Credentials are read only for a body that anonymous callers may not
    send."""
    is_small = not _header(scope, b"transfer-encoding") if length is None else length <= ANONYMOUS_LIMIT
    if is_small or not await in_thread(_is_known, scope):
        return ANONYMOUS_LIMIT
    return int(settings.DATA_UPLOAD_MAX_MEMORY_SIZE)


def _is_known(scope: Message) -> bool:
    """Return whether the request carries a valid token or session. Reads the database."""
    try:
        return _has_token(scope) or _has_session(scope)
    finally:
        close_old_connections()


def _has_token(scope: Message) -> bool:
    scheme, _, secret = _header(scope, b"authorization").partition(" ")
    return scheme.lower() == "bearer" and token_behind(secret.strip(), now()) is not None


def _has_session(scope: Message) -> bool:
    try:
        cookie = SimpleCookie(_header(scope, b"cookie")).get(settings.SESSION_COOKIE_NAME)
    except CookieError:
        return False
    return cookie is not None and is_signed_in(cookie.value)


def _header(scope: Message, name: bytes) -> str:
    values: list[bytes] = [value for key, value in scope["headers"] if key == name]
    return values[0].decode("latin-1") if values else ""
