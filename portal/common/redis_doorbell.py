"""The doorbell between processes on several machines: topics are published in one channel of a Redis.

Redis stores nothing of it, so a full Redis rings as well. A message that nobody receives is lost, like any ring.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any

from portal.common.hint_sender import HintSender
from portal.common.redis_client import async_client, client_of, without_password

_log = logging.getLogger(__name__)

CHANNEL = "regatta:doorbell"


@functools.cache
def ringer(url: str) -> HintSender:
    """Return the sender of topics to a Redis."""

    def publish(topics: Sequence[str]) -> None:
        pipeline = client_of(url).pipeline(transaction=False)
        for topic in topics:
            pipeline.publish(CHANNEL, topic)
        pipeline.execute()

    what = f"Redis at {without_password(url)} (doorbell)"
    return HintSender(publish, what=what, without="readers poll until then")


class RedisListener:
    """Receives the rings of all processes in the running event loop.

    ``strike`` gets the topic of each ring. ``strike_all`` is called at the beginning and the end of each outage: rings
    may have been lost. ``subscribed`` is set while no ring is lost.
    """

    RETRY_SECONDS = 1.0
    # Silence after which Redis must answer a ping, within the same time again.
    SILENT_SECONDS = 5.0

    def __init__(self, url: str, strike: Callable[[str], None], strike_all: Callable[[], None]) -> None:
        self._url, self._strike, self._strike_all = url, strike, strike_all
        self._is_away = False
        self.subscribed = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._listen())

    async def _listen(self) -> None:
        while True:
            try:
                await self._receive()
            except Exception as error:  # noqa: BLE001  Redis fails in many ways, and recovers
                if not self._is_away:
                    self._strike_all()
                self._note(error)
                await asyncio.sleep(self.RETRY_SECONDS)

    async def _receive(self) -> None:
        async with async_client(self._url) as client, client.pubsub() as channel:
            await channel.subscribe(CHANNEL)
            pinged = False
            while True:
                message = await channel.get_message(timeout=self.SILENT_SECONDS)
                if message is None:
                    if pinged:
                        raise TimeoutError(f"no answer to a ping within {self.SILENT_SECONDS:g} s")
                    await channel.ping()
                pinged = message is None
                self._handle(message)

    def _handle(self, message: dict[str, Any] | None) -> None:
        if message is None or message["type"] == "pong":
            return
        if message["type"] == "message":
            self._strike(message["data"].decode(errors="replace"))
        else:  # the answer to the subscription
            self._strike_all()
            self._note(None)

    def _note(self, error: Exception | None) -> None:
        """Log the beginning and the end of an outage, once each."""
        server, was_away, self._is_away = without_password(self._url), self._is_away, error is not None
        if error is None:
            self.subscribed.set()
        else:
            self.subscribed.clear()
        if error is not None and not was_away:
            _log.warning("Redis at %s cannot be reached; readers poll until it can: %s", server, error)
        elif error is None and was_away:
            _log.warning("Redis at %s can be reached again.", server)

    def close(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has been closed, and the task with it
            self._task.cancel()
