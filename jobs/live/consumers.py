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
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from channels.generic.websocket import AsyncWebsocketConsumer
from django.contrib.auth.signals import user_logged_out
from django.dispatch import receiver

from jobs.live.closes import IDLE, NOWHERE, REASONS, code_after
from jobs.live.person_socket import PersonSocket
from jobs.live.subscriptions import Ask, Subscription, key_of, subscription
from jobs.streams.frames import encode
from jobs.streams.tailer import in_thread, tailer
from portal.common.errors import RegattaError, TooManyRequests, ValidationFailed
from portal.common.messages import localized
from rbac.models import User
from rbac.socket_revocation import wake_sockets

HEARTBEAT_SECONDS = 15.0
RECHECK_SECONDS = 60.0
AFTER_RING_SECONDS = 1.0
IDLE_SECONDS = 600.0
SUBSCRIPTIONS_PER_SOCKET = 16
ASK_CHARACTERS = 16 * 1024

# Open sockets of each user in this process.
_open_sockets: Counter[int] = Counter()


@receiver(user_logged_out)
def _wake_sockets(sender: Any, user: Any, **_: Any) -> None:
    """Close the sockets of a session at its sign-out, not only at their next check."""
    if user is not None:
        wake_sockets([user.pk])


class StreamConsumer(PersonSocket):
    """A socket. Each subscription is a task that pulls frames and sends them: a slow connection slows only itself."""

    recheck_seconds, after_ring_seconds = RECHECK_SECONDS, AFTER_RING_SECONDS
    open_sockets = _open_sockets

    def prepare(self) -> None:
        self._running: dict[str, tuple[Subscription, asyncio.Task[None]]] = {}
        self._busy_at = time.monotonic()

    async def open(self) -> int | None:
        """Begin the heartbeats and the checks of an admitted caller."""
        self._tasks = [asyncio.create_task(self._beat()), asyncio.create_task(self._guard())]
        return None

    async def disconnect(self, code: int) -> None:
        for _, task in self._running.values():
            task.cancel()
        self._leave()

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

    async def recheck(self, user: User) -> int | None:
        """Drop the subscriptions that the caller may not see any more. Return a code if the socket must close."""
        for wanted, _ in list(self._running.values()):
            try:
                await in_thread(wanted.admit, user)
            except RegattaError as error:
                await self._drop(wanted.key)
                await self._complain(error, wanted.mark)
        if self._running:
            self._busy_at = time.monotonic()
        return IDLE if time.monotonic() - self._busy_at > IDLE_SECONDS else None


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
