"""The websocket of the pages and of clients: ``/ws/v1/stream``. One socket carries many subscriptions.

Requests (``Ask``, JSON objects)::

    {"op": "sub", "id"?, "stream": "logs" | "metrics", "job", "after"?, "replica"?}    after -1: from the last 500 on
    {"op": "sub", "id"?, "stream": "status", "job"}
    {"op": "sub", "id"?, "stream": "jobs", "namespace"}
    {"op": "unsub", "id"} or {"op": "unsub", "stream", "job" | "namespace"}            {"op": "ping"}

Frames: ``logs`` and ``metrics`` (entries, with lo and hi), ``status`` and ``jobs`` (whole states, not changes),
``gap``, ``end``, ``hb`` (every 15 s, with the heads of the subscribed streams), ``pong``, ``error``. Every frame of a
subscription with an ``id`` contains that id.

The handshake is always accepted, and a refused socket is then closed with a code and a reason, because browsers hide
the reason of a refused handshake: 4401 not signed in, 4403 another origin, 4404 no socket at this address, 4408 idle,
4409 too slow, 4429 too many sockets, 1011 internal error, 1012 the process ends, 1013 the database is unavailable.
After a close of the last three a client connects again, with a growing pause, and subscribes from its cursors.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from channels.generic.websocket import AsyncWebsocketConsumer
from django.contrib.auth.signals import user_logged_out
from django.dispatch import receiver
from django.utils import translation

from jobs.live.authentication import Credentials, credentials, language, same_origin
from jobs.live.subscriptions import Ask, Subscription, key_of, subscription
from jobs.streams.frames import encode
from jobs.streams.tailer import in_thread, tailer
from portal.common import outages
from portal.common.errors import RegattaError, TooManyRequests, ValidationFailed
from portal.common.messages import localized
from portal.common.monitoring import log_context
from rbac.models import User
from rbac.socket_revocation import account_topic, wake_sockets

NOT_SIGNED_IN, WRONG_ORIGIN, NOWHERE, IDLE, TOO_SLOW, TOO_MANY = 4401, 4403, 4404, 4408, 4409, 4429
FAILED, UNAVAILABLE = 1011, 1013
REASONS: Mapping[int, str] = {
    NOT_SIGNED_IN: "Sign in, then connect again.",
    WRONG_ORIGIN: "This page does not belong to the portal.",
    NOWHERE: "There is no socket at this address; streams are at /ws/v1/stream.",
    IDLE: "Nothing was subscribed for a long time.",
    TOO_SLOW: "The connection is too slow; connect again from your cursor.",
    FAILED: "Something went wrong on our side; connect again from your cursor.",
    UNAVAILABLE: "The portal's database is not responding; connect again from your cursor in a few seconds.",
    TOO_MANY: "You have too many connections open; close some pages.",
}

_log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 15.0
RECHECK_SECONDS = 60.0
AFTER_RING_SECONDS = 1.0
SEND_SECONDS = 20.0
IDLE_SECONDS = 600.0
SOCKETS_PER_USER = 20
SUBSCRIPTIONS_PER_SOCKET = 16
ASK_CHARACTERS = 16 * 1024

# Open sockets of each user in this process.
_open_sockets: Counter[int] = Counter()


@receiver(user_logged_out)
def _wake_sockets(sender: Any, user: Any, **_: Any) -> None:
    """Close the sockets of a session at its sign-out, not only at their next check."""
    if user is not None:
        wake_sockets([user.pk])


class StreamConsumer(AsyncWebsocketConsumer):
    """A socket. Each subscription is a task that pulls frames and sends them: a slow connection slows only itself."""

    async def connect(self) -> None:
        self._user: User | None = None
        self._running: dict[str, tuple[Subscription, asyncio.Task[None]]] = {}
        self._keepers: list[asyncio.Task[None]] = []
        self._sending = asyncio.Lock()
        self._busy_at = time.monotonic()
        await self.accept()
        self._credentials = credentials(self.scope)
        # Applies only to this socket's tasks, which inherit its context.
        translation.activate(language(self.scope))
        refused = await self._guarded(self._admit(self._credentials))
        if refused is not None:
            await self._end(refused)
            return
        self._keepers = [asyncio.create_task(self._beat()), asyncio.create_task(self._guard())]

    async def _admit(self, shown: Credentials) -> int | None:
        """Admit the caller, or return the code that refuses it."""
        if not shown.token and not same_origin(self.scope):
            return WRONG_ORIGIN
        user = await in_thread(shown.user)
        if user is None:
            return NOT_SIGNED_IN
        if _open_sockets[user.pk] >= SOCKETS_PER_USER:
            return TOO_MANY
        _open_sockets[user.pk] += 1
        self._user = user
        log_context.note(user=user.pk)
        return None

    async def _end(self, code: int) -> None:
        """Close the socket, if the reader has not left already: the server then raises OSError, as ASGI requires."""
        with contextlib.suppress(OSError):
            await self.close(code=code, reason=REASONS[code])

    async def disconnect(self, code: int) -> None:
        for task in [*self._keepers, *(task for _, task in self._running.values())]:
            task.cancel()
        if self._user is not None:
            _open_sockets[self._user.pk] -= 1
            if not _open_sockets[self._user.pk]:
                del _open_sockets[self._user.pk]
            self._user = None

    # --- Requests ----------------------------------------------------------------------------------------------------
    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        if self._user is None:
            return
        ask: Ask = {}
        try:
            ask = _read(text_data)
            await _operation(ask)(self, ask)
        except RegattaError as error:
            await self._complain(error, ask.get("id"))
        except Exception as error:  # noqa: BLE001  any internal error, such as an unavailable database
            # If raised further, it would end this consumer without ``disconnect``: its tasks and its place would stay.
            await self._end(code_after(error, "An ask could not be answered."))

    async def subscribe(self, ask: Ask) -> None:
        """Start a subscription. A repeated key restarts its subscription from the new cursor."""
        assert self._user is not None  # noqa: S101  no request is read before the caller is admitted
        wanted = subscription(ask)
        await self._drop(wanted.key)
        if len(self._running) >= SUBSCRIPTIONS_PER_SOCKET:
            raise TooManyRequests(
                f"A socket carries at most {SUBSCRIPTIONS_PER_SOCKET} subscriptions; end one first.", retry_after=1
            )
        # Checked here, so that a refusal is sent before the next request is read.
        await in_thread(wanted.admit, self._user)
        await wanted.start()
        self._running[wanted.key] = wanted, asyncio.create_task(self._run(wanted))

    async def unsubscribe(self, ask: Ask) -> None:
        """End a subscription. No frame of it is sent after this."""
        await self._drop(key_of(ask))

    async def pong(self, ask: Ask) -> None:
        """Answer a ping."""
        await self._send(encode({"t": "pong", "ts": time.time()}))

    async def _drop(self, key: str) -> None:
        _, task = self._running.pop(key, (None, None))
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _run(self, wanted: Subscription) -> None:
        try:
            async for text in wanted.frames():
                if not await self._send(_marked(text, wanted.mark)):
                    break
        except Exception as error:  # noqa: BLE001  any internal error
            # Without frames the reader would wait for ever. After the close it connects again, from its cursor.
            await self._end(code_after(error, f"The subscription {wanted.topic} has failed."))
        self._running.pop(wanted.key, None)

    # --- Sending -----------------------------------------------------------------------------------------------------
    async def _send(self, text: str) -> bool:
        """Send one frame. Waits while the connection's buffer is full, and closes the socket after SEND_SECONDS.

        Return False if the socket has no reader any more. That is no error: ``disconnect`` follows.
        """
        try:
            async with self._sending, asyncio.timeout(SEND_SECONDS):
                await self.send(text_data=text)
        except TimeoutError:  # before OSError, of which it is one
            await self._end(TOO_SLOW)
            return False
        except OSError:
            return False
        return True

    async def _complain(self, error: RegattaError, mark: Any) -> None:
        await self._send(_marked(encode({"t": "error", "code": error.code, "detail": localized(error.detail)}), mark))

    # --- Background tasks --------------------------------------------------------------------------------------------
    async def _beat(self) -> None:
        """Send a heartbeat with the heads of the socket's streams every HEARTBEAT_SECONDS."""
        present = True
        while present:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            topics = {wanted.topic for wanted, _ in self._running.values()}
            heads = {topic: head for topic, head in tailer().heads().items() if topic in topics}
            present = await self._send(encode({"t": "hb", "heads": heads, "ts": time.time()}))

    async def _guard(self) -> None:
        """Check, at a sign-out and every minute, whether the caller may still see the socket's streams."""
        assert self._user is not None  # noqa: S101  starts after the caller is admitted
        with tailer().doorbell.subscribe(account_topic(self._user.pk)) as bell:
            rung = False
            while True:
                # A sign-out rings just before its session is removed: a second check follows soon after a ring.
                rung = await bell.wait(AFTER_RING_SECONDS if rung else RECHECK_SECONDS)
                code = await self._guarded(self._recheck())
                if code is not None:
                    await self._end(code)
                    return

    async def _guarded(self, check: Awaitable[int | None]) -> int | None:
        """Return the code of the check, or the code of the error that it raises, as without a database.

        The socket then closes, because it sends nothing that could not be checked. The reader connects again.
        """
        try:
            return await check
        except Exception as error:  # noqa: BLE001  any internal error
            return code_after(error, "The caller of a socket could not be checked.")

    async def _recheck(self) -> int | None:
        """Drop the subscriptions that the caller may not see any more. Return a code if the socket must close."""
        user = await in_thread(self._credentials.user)
        if user is None:
            return NOT_SIGNED_IN
        for wanted, _ in list(self._running.values()):
            try:
                await in_thread(wanted.admit, user)
            except RegattaError as error:
                await self._drop(wanted.key)
                await self._complain(error, wanted.mark)
        if self._running:
            self._busy_at = time.monotonic()
        return IDLE if time.monotonic() - self._busy_at > IDLE_SECONDS else None


def code_after(error: Exception, message: str) -> int:
    """Log an error and return the code with which it closes the socket."""
    if outages.unavailable(error) is not None:
        return UNAVAILABLE
    _log.error("%s", message, exc_info=error)
    return FAILED


_OPERATIONS: Mapping[str, Callable[[StreamConsumer, Ask], Awaitable[None]]] = {
    "sub": StreamConsumer.subscribe,
    "unsub": StreamConsumer.unsubscribe,
    "ping": StreamConsumer.pong,
}


def _operation(ask: Ask) -> Callable[[StreamConsumer, Ask], Awaitable[None]]:
    name = ask.get("op")
    found = _OPERATIONS.get(name) if isinstance(name, str) else None
    if found is None:
        raise ValidationFailed({"op": [f"Must be one of {', '.join(_OPERATIONS)}."]})
    return found


def _read(text: str | None) -> Ask:
    """Parse the JSON object of a request. Raises ValidationFailed."""
    if text is None or len(text) > ASK_CHARACTERS:
        raise ValidationFailed({"ask": [f"Send text, a JSON object of at most {ASK_CHARACTERS} characters."]})
    try:
        ask = json.loads(text)
    except (ValueError, RecursionError):
        raise ValidationFailed({"ask": ["This is not JSON."]}) from None
    if not isinstance(ask, dict):
        raise ValidationFailed({"ask": ["Send a JSON object."]})
    return ask


def _marked(text: str, mark: Any) -> str:
    """Add the id of its subscription to an encoded frame. All readers share the text, and each has its own id."""
    return f'{{"id":{json.dumps(mark)},{text[1:]}' if isinstance(mark, str) and mark else text


class NowhereConsumer(AsyncWebsocketConsumer):
    """Consumer of every other address. Without it the server would log an internal error."""

    async def connect(self) -> None:
        await self.accept()
        await self.close(code=NOWHERE, reason=REASONS[NOWHERE])
