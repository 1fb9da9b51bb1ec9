"""Base of the websockets of a person: admission, time limits, and the check of the right while a socket is open.

The handshake is always accepted, and a refused socket is then closed with a code and a reason, because browsers hide
the reason of a refused handshake.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Mapping
from typing import ClassVar

from channels.generic.websocket import AsyncWebsocketConsumer
from django.utils import translation

from jobs.live.authentication import credentials, language, same_origin
from jobs.live.closes import NOT_SIGNED_IN, REASONS, TOO_MANY, TOO_SLOW, WRONG_ORIGIN, code_after
from jobs.streams.tailer import in_thread, tailer
from portal.common.monitoring import log_context
from rbac.models import User
from rbac.socket_revocation import account_topic

SEND_SECONDS = 20.0
# A reader that reads nothing delays the close of a socket.
CLOSE_SECONDS = 1.0


class PersonSocket(AsyncWebsocketConsumer):
    """A socket of an account.

    ``open_sockets``: open sockets of each user in this process, of this kind. A right that is lost without a notice
    ends the socket after ``recheck_seconds``; a second check follows ``after_ring_seconds`` after a notice.
    """

    sockets_per_user: ClassVar[int] = 20
    recheck_seconds: ClassVar[float]
    after_ring_seconds: ClassVar[float]
    reasons: ClassVar[Mapping[int, str]] = REASONS
    open_sockets: ClassVar[Counter[int]]

    async def connect(self) -> None:
        self._user: User | None = None
        # The right to the socket is lost, or it has no reader: nothing passes, even while that delays the close.
        self.severed = False
        self._tasks: list[asyncio.Task[None]] = []
        self._sending = asyncio.Lock()
        self.prepare()
        await self.accept()
        self._credentials = credentials(self.scope)
        # Applies only to this socket's tasks, which inherit its context.
        translation.activate(language(self.scope))
        refused = await self._guarded(self._admit())
        if refused is None:
            refused = await self._guarded(self.open())
        if refused is not None:
            await self._end(refused)

    def prepare(self) -> None:
        """Set what ``disconnect`` needs, before anything can fail."""

    async def open(self) -> int | None:
        """Begin the work of an admitted caller, or return the code that refuses it."""
        raise NotImplementedError

    async def recheck(self, user: User) -> int | None:
        """Check what the account may do with this socket. Return a code if the socket must close."""
        raise NotImplementedError

    async def _admit(self) -> int | None:
        """Admit the caller, or return the code that refuses it."""
        if not self._credentials.token and not same_origin(self.scope):
            return WRONG_ORIGIN
        user = await in_thread(self._credentials.user)
        if user is None:
            return NOT_SIGNED_IN
        if self.open_sockets[user.pk] >= self.sockets_per_user:
            return TOO_MANY
        self.open_sockets[user.pk] += 1
        self._user = user
        log_context.note(user=user.pk)
        return None

    def _leave(self) -> None:
        """End the tasks of the socket, and give its place back."""
        for task in self._tasks:
            task.cancel()
        if self._user is not None:
            self.open_sockets[self._user.pk] -= 1
            if not self.open_sockets[self._user.pk]:
                del self.open_sockets[self._user.pk]
            self._user = None

    async def _send(self, content: str | bytes) -> bool:
        """Send one frame. Waits while the connection's buffer is full, and closes the socket after SEND_SECONDS.

        Return False if the socket has no reader any more. That is no error: ``disconnect`` follows.
        """
        try:
            async with self._sending, asyncio.timeout(SEND_SECONDS):
                if isinstance(content, str):
                    await self.send(text_data=content)
                else:
                    await self.send(bytes_data=content)
        except TimeoutError:  # before OSError, of which it is one
            self.severed = True
            await self._end(TOO_SLOW)
            return False
        except OSError:
            return False
        return True

    async def _end(self, code: int) -> None:
        """Close the socket, if the reader has not left already: the server then raises OSError, as ASGI requires."""
        with contextlib.suppress(OSError):  # TimeoutError is one
            async with asyncio.timeout(CLOSE_SECONDS):
                await self.close(code=code, reason=self.reasons[code])
            return
        await self.abandon()

    async def abandon(self) -> None:
        """Close what the socket holds at the replica: ``disconnect`` may come late."""

    async def _guard(self) -> None:
        """Check, at a sign-out or a change of role and from time to time, whether the caller may still use it."""
        assert self._user is not None  # noqa: S101  starts after the caller is admitted
        with tailer().doorbell.subscribe(account_topic(self._user.pk)) as bell:
            rung = False
            while True:
                # A sign-out rings just before its session is removed: a second check follows soon after a ring.
                rung = await bell.wait(self.after_ring_seconds if rung else self.recheck_seconds)
                code = await self._guarded(self._recheck())
                if code is not None:
                    self.severed = True
                    await self._end(code)
                    return

    async def _recheck(self) -> int | None:
        user = await in_thread(self._credentials.user)
        if user is None:
            self.severed = True
            return NOT_SIGNED_IN
        return await self.recheck(user)

    async def _guarded(self, check: Awaitable[int | None]) -> int | None:
        """Return the code of the check, or the code of the error that it raises, as without a database.

        The socket then closes, because it sends nothing that could not be checked. The reader connects again.
        """
        try:
            return await check
        except Exception as error:  # noqa: BLE001  any internal error
            return code_after(error, "The caller of a socket could not be checked.")
