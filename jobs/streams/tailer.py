"""Tailer of streams for all readers of this process: each block is read and encoded once for any number of sockets.

There is one ``StreamReader`` per (job, kind) and one ``Watcher`` per job or namespace, which run while they have
subscribers. A doorbell or a slow poll wakes them. Readers pull: each keeps its own cursor and requests the frame after
it. A frame in the bounded window of the ``StreamReader`` costs no query; a slow reader reads from the store instead. So
there is no queue that could grow.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import weakref
from collections.abc import AsyncIterator, Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ParamSpec, Protocol, TypeVar

from channels.db import DatabaseSyncToAsync

from jobs.models.streams import StreamKind
from jobs.streams import store
from jobs.streams.frames import Frame, frames_of
from jobs.streams.window import Window
from portal.common.doorbell import Bell, Doorbell
from portal.common.monitoring import metrics
from portal.common.outages import log_failure

_log = logging.getLogger(__name__)

POLL_SECONDS = 5.0
# Minimum time between two reads of a state, however often it changes.
STATE_SPACING_SECONDS = 0.1
# Minimum time between two reads of a stream: continuous output then makes full frames and not many small ones.
SPACING_SECONDS = 0.02
# Additional time for each reader, so that a web process with many readers does not spend its time on small frames.
SPACING_PER_READER = 0.0002
MOST_SPACING = 0.1
WINDOW_BYTES = 4 * 1024 * 1024
READ_ENTRIES = 2000

Given = ParamSpec("Given")
Result = TypeVar("Result")

_threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="streams")


async def in_thread(function: Callable[Given, Result], *given: Given.args, **named: Given.kwargs) -> Result:
    """Run a function that reads the database on one of the threads of the streams."""
    call: Any = DatabaseSyncToAsync(function, thread_sensitive=False, executor=_threads)
    result: Result = await call(*given, **named)
    return result


# --- Frames ----------------------------------------------------------------------------------------------------------
AnyFrame = Frame[Any]


@dataclass(frozen=True)
class Missing:
    """Range of entries that were removed."""

    first: int
    last: int


class _Broadcast:
    """Wakes all waiting tasks at each ``notify``.

    To miss no notification, take ``next`` before reading the state, and wait for it afterwards.
    """

    def __init__(self) -> None:
        self.next = asyncio.Event()

    def notify(self) -> None:
        rung, self.next = self.next, asyncio.Event()
        rung.set()


class _Shared(Protocol):
    """Task that runs while it has readers."""

    topic: str
    readers: int

    async def run(self, bell: Bell) -> None: ...


class StreamReader:
    """Follows one stream of one job.

    ``hi``: the last entry that was read; ``ended``: whether the stream is complete and was read to its end.
    """

    def __init__(self, job: str, kind: StreamKind) -> None:
        self.job, self.kind = job, kind
        self.topic = f"{kind}:{job}"
        self.readers = 0
        self.hi = 0
        self.ended = False
        self._started = False
        self._window: Window[AnyFrame] = Window(WINDOW_BYTES)
        self._broadcast = _Broadcast()

    async def run(self, bell: Bell) -> None:
        """Read the stream until cancelled. Errors are logged and the read is retried."""
        polled = False
        while True:
            started, hi, since = self._started, self.hi, bell.take_since()
            try:
                caught_up = await self._read_on()
            except Exception as error:  # noqa: BLE001  without a retry all readers would wait forever
                log_failure(_log, error, "The stream %s could not be read; trying again.", self.topic)
                caught_up = True
            if started and self.hi > hi:
                _note_delivery(since, polled)
            await asyncio.sleep(min(SPACING_SECONDS + SPACING_PER_READER * self.readers, MOST_SPACING))
            polled = caught_up and not await bell.wait(POLL_SECONDS)

    async def _read_on(self) -> bool:
        """Read the new entries. True: none are left."""
        head = await in_thread(store.head, self.job, self.kind)
        if not self._started:
            # Earlier entries do not enter the window: readers get them from the store.
            self.hi, self._started = head.last, True
        frames = await in_thread(_frames_after, self.job, self.kind, self.hi) if head.last > self.hi else []
        for frame in frames:
            self._keep(frame)
        self.ended = head.closed and self.hi >= head.last
        self._broadcast.notify()
        return self.hi >= head.last

    def _keep(self, frame: AnyFrame) -> None:
        self._window.add(frame)
        self.hi = frame.hi

    async def follow(self, after: int, replica: str | None = None) -> AsyncIterator[AnyFrame | Missing]:
        """Yield all entries after the cursor, in order and once; return after the last entry of a stream that ended."""
        cursor = after
        while True:
            change = self._broadcast.next
            if (frame := self._window.after(cursor)) is not None:
                frames = [frame]
            elif cursor < self.hi:
                frames = await in_thread(_frames_after, self.job, self.kind, cursor)
            else:
                frames = []
            for frame in frames:
                if frame.lo > cursor + 1:
                    yield Missing(cursor + 1, frame.lo - 1)
                narrow = frame.narrowed(cursor, replica)
                if narrow.entries:
                    yield narrow
                cursor = frame.hi
            if frames:
                continue
            if self.ended:
                return
            await change.wait()


def _note_delivery(since: float | None, polled: bool) -> None:
    """Measure the delivery of entries. ``since``: their commit; ``polled``: the read followed a poll, not a ring."""
    if since is not None:
        metrics.STREAM_LAG.observe(max(0.0, time.time() - since))
    elif polled:
        metrics.STREAM_FALLBACKS.inc()


def _frames_after(job: str, kind: StreamKind, after: int) -> list[AnyFrame]:
    if kind == StreamKind.LOGS:
        lines = store.read_logs(job, after=after, limit=READ_ENTRIES).lines
        return [frame for run in _runs(lines) for frame in frames_of(kind, job, run)]
    points = store.read_points(job, after=after, limit=READ_ENTRIES)
    return [frame for run in _runs(points) for frame in frames_of(kind, job, run)]


def _runs(entries: list[Any]) -> list[list[Any]]:
    """Split entries where a sequence number is missing."""
    breaks = [place for place in range(1, len(entries)) if entries[place].seq != entries[place - 1].seq + 1]
    edges = [0, *breaks, len(entries)]
    return [entries[start:end] for start, end in pairwise(edges) if start < end]


class Watcher:
    """Follows a state: readers get the newest version, and not each one before it.

    ``read`` returns a hashable version and the state to send.
    """

    def __init__(self, topic: str, read: Callable[[], tuple[Hashable, Any]]) -> None:
        self.topic, self._read = topic, read
        self.readers = 0
        self._version: Hashable = None
        self._state: Any = None
        self._changes = 0
        self._broadcast = _Broadcast()

    async def run(self, bell: Bell) -> None:
        """Read at each ring of the bell, and every ``POLL_SECONDS`` in case one was lost. A failed read is retried."""
        while True:
            try:
                version, state = await in_thread(self._read)
            except Exception as error:  # noqa: BLE001  without a retry all readers would wait forever
                log_failure(_log, error, "The state %s could not be read; trying again.", self.topic)
            else:
                self._note(version, state)
            await asyncio.sleep(STATE_SPACING_SECONDS)
            await bell.wait(POLL_SECONDS)

    def _note(self, version: Hashable, state: Any) -> None:
        if self._changes and version == self._version:
            return
        self._version, self._state, self._changes = version, state, self._changes + 1
        self._broadcast.notify()

    async def follow(self) -> AsyncIterator[Any]:
        """Yield the present state, then each newer one."""
        seen = 0
        while True:
            change = self._broadcast.next
            if self._changes > seen:
                seen = self._changes
                yield self._state
            else:
                await change.wait()


Follower = TypeVar("Follower", bound=_Shared)


class Tailer:
    """Stream readers and watchers of one event loop."""

    def __init__(self) -> None:
        self.doorbell = Doorbell()
        self._running: dict[str, tuple[Any, asyncio.Task[None]]] = {}

    @contextlib.asynccontextmanager
    async def stream(self, job: str, kind: StreamKind) -> AsyncIterator[StreamReader]:
        """Return the shared reader of a stream; it runs while the context is open."""
        async with self._share(f"{kind}:{job}", lambda: StreamReader(job, kind)) as reader:
            yield reader

    @contextlib.asynccontextmanager
    async def state(self, topic: str, read: Callable[[], tuple[Hashable, Any]]) -> AsyncIterator[Watcher]:
        """Return the shared watcher of a state; it runs while the context is open."""
        async with self._share(topic, lambda: Watcher(topic, read)) as watcher:
            yield watcher

    @contextlib.asynccontextmanager
    async def _share(self, topic: str, make: Callable[[], Follower]) -> AsyncIterator[Follower]:
        if topic not in self._running:
            follower = make()
            self._running[topic] = follower, asyncio.create_task(self._run(follower), name=topic)
        follower, task = self._running[topic]
        follower.readers += 1
        try:
            yield follower
        finally:
            follower.readers -= 1
            if not follower.readers:
                self._running.pop(topic, None)  # close() has removed it already if the loop ends first
                task.cancel()

    async def _run(self, follower: _Shared) -> None:
        with self.doorbell.subscribe(follower.topic) as bell:
            await follower.run(bell)

    def heads(self) -> dict[str, int]:
        """Return the last entry that was read of each followed stream, by topic."""
        followers = [follower for follower, _ in self._running.values()]
        return {reader.topic: reader.hi for reader in followers if isinstance(reader, StreamReader)}

    def close(self) -> None:
        """Stop all readers and watchers, at the end of an event loop. A process that exits needs no call."""
        for _, task in self._running.values():
            task.cancel()
        self._running.clear()
        self.doorbell.close()


_tailers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Tailer] = weakref.WeakKeyDictionary()


def tailer() -> Tailer:
    """Return the tailer of the running event loop, which the first call creates."""
    loop = asyncio.get_running_loop()
    if loop not in _tailers:
        _tailers[loop] = Tailer()
    return _tailers[loop]
