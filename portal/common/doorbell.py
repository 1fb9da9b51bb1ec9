"""The doorbell: notifies readers in the web process that data of a topic has changed.

A ring is a hint. It may be lost, doubled or late; a reader reads the database strictly after its cursor and polls
slowly besides. Synchronous code in any process may call ``ring``, which never blocks and never raises. Inside a
transaction it rings after the commit.

Two implementations. Without Redis every listening process binds its own datagram socket in the run directory, and a
ring sends the topic to each of them. With Redis (``settings.REDIS_URL``) topics are published in a channel of it
(``portal.common.redis_doorbell``).

Topics: ``logs:<job>``, ``metrics:<job>``, ``status:<job>``, ``status:ns:<namespace>``.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import hashlib
import logging
import os
import secrets
import socket
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings
from django.db import transaction

from portal.common.monitoring import metrics
from portal.common.redis_doorbell import RedisListener, ringer

_log = logging.getLogger(__name__)

# sun_path holds 108 bytes with the final zero byte; part of it is needed for the name of the socket in the directory.
_PATH_BYTES = 107
_NAME_BYTES = 32
# With this many datagrams waiting the queue of the socket may have been full, and some topics may have been dropped.
_CROWD = 8
_DATAGRAM_BYTES = 512


def ring(topic: str) -> None:
    """Wake the readers that wait for the topic, after the current transaction has been committed."""
    transaction.on_commit(lambda: _ring_now(topic), robust=True)


def _ring_now(topic: str) -> None:
    at = time.time()
    for doorbell in _local_doorbells():
        doorbell.ring_here(topic, at)
    try:
        if settings.REDIS_URL:
            ringer(settings.REDIS_URL).put(topic)
        else:
            _ring_sockets(topic)
    except Exception:  # noqa: BLE001  a hint must never fail the operation that it reports
        metrics.DOORBELL_FAILURES.inc()
        _log.warning("The doorbell could not be rung for %s; readers will find out by polling.", topic, exc_info=True)


# --- Listening -------------------------------------------------------------------------------------------------------
class Bell:
    """The subscription of one reader to one topic. Rings that arrive while it does not wait are merged into one."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()
        self._since: float | None = None

    def strike(self, at: float) -> None:
        """Ring for a change that was committed at ``at`` (unix time)."""
        self._since = at if self._since is None else min(at, self._since)
        self._rung.set()

    def take_since(self) -> float | None:
        """Return the time of the first change since the last call, None if there was no ring."""
        since, self._since = self._since, None
        return since

    async def wait(self, timeout: float) -> bool:
        """Wait for a ring, at most ``timeout`` seconds. Return whether there was one."""
        try:
            async with asyncio.timeout(timeout):
                await self._rung.wait()
        except TimeoutError:
            return False
        self._rung.clear()
        return True


class Doorbell:
    """The listener of one event loop. Subscribe before reading, read, then wait: no ring is missed in between."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._bells: defaultdict[str, set[Bell]] = defaultdict(set)
        self._listener: _SocketListener | RedisListener = (
            RedisListener(settings.REDIS_URL, self.strike, self.strike_all)
            if settings.REDIS_URL
            else _SocketListener(self)
        )
        with _doorbells_lock:
            _doorbells.append(self)

    @contextlib.contextmanager
    def subscribe(self, topic: str) -> Iterator[Bell]:
        """Yield a bell that rings for the topic while the block runs."""
        bell = Bell()
        self._bells[topic].add(bell)
        try:
            yield bell
        finally:
            self._bells[topic].discard(bell)
            if not self._bells[topic]:
                del self._bells[topic]

    async def wait(self, topic: str, timeout: float) -> bool:
        """Wait once for a topic. In a loop use ``subscribe``: a ring between two calls of this method is missed."""
        with self.subscribe(topic) as bell:
            return await bell.wait(timeout)

    def strike(self, topic: str, at: float | None = None) -> None:
        """Wake the waiting readers of a topic, whose change was committed at ``at``, by default now. To be called in
        the thread of the loop only."""
        at = time.time() if at is None else at
        for bell in self._bells.get(topic, ()):
            bell.strike(at)

    def strike_all(self) -> None:
        at = time.time()
        for bells in self._bells.values():
            for bell in bells:
                bell.strike(at)

    def ring_here(self, topic: str, at: float) -> None:
        """Notify the readers of a topic from any thread of this process."""
        with contextlib.suppress(RuntimeError):  # the loop has been closed
            self._loop.call_soon_threadsafe(self.strike, topic, at)

    def close(self) -> None:
        with _doorbells_lock, contextlib.suppress(ValueError):
            _doorbells.remove(self)
        self._listener.close()


# The doorbells of this process: one for each event loop that listens.
_doorbells: list[Doorbell] = []
_doorbells_lock = threading.Lock()


def _local_doorbells() -> list[Doorbell]:
    with _doorbells_lock:
        return list(_doorbells)


# --- Datagram sockets ------------------------------------------------------------------------------------------------
class _SocketListener:
    """Receives the rings of other processes on a datagram socket."""

    def __init__(self, doorbell: Doorbell) -> None:
        self._doorbell = doorbell
        self._loop = asyncio.get_running_loop()
        self.path = run_directory() / f"{os.getpid()}-{secrets.token_hex(4)}.bell"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(str(self.path))
        self.path.chmod(0o600)
        self._loop.add_reader(self._socket, self._receive)

    def _receive(self) -> None:
        received = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                self._doorbell.strike(self._socket.recv(_DATAGRAM_BYTES).decode(errors="replace"))
                received += 1
        if received >= _CROWD:
            self._doorbell.strike_all()

    def close(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.remove_reader(self._socket)
        self._socket.close()
        self.path.unlink(missing_ok=True)


def run_directory() -> Path:
    """Return the directory of the sockets; make it when it is missing, readable by its owner alone.

    When the path of the data directory is too long for the name of a socket, a directory in the system's temporary
    directory is used instead. Its name holds a hash of the long path.
    """
    return _run_directory(Path(settings.DATA_DIR))


@functools.cache
def _run_directory(data_dir: Path) -> Path:
    directory = data_dir / "run" / "doorbell"
    if len(os.fsencode(directory)) + 1 + _NAME_BYTES > _PATH_BYTES:
        digest = hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]
        directory = Path(tempfile.gettempdir()) / f"regatta-{os.getuid()}-{digest}"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if directory.stat().st_uid != os.getuid():
        raise PermissionError(f"{directory} belongs to somebody else; remove it or choose another REGATTA_DATA_DIR.")
    return directory


def _ring_sockets(topic: str) -> None:
    own = {
        doorbell._listener.path.name
        for doorbell in _local_doorbells()
        if isinstance(doorbell._listener, _SocketListener)
    }
    # Only names, only a few, at every batch of data: a list of paths would cost ten times as much.
    bells = [name for name in os.listdir(run_directory()) if name.endswith(".bell") and name not in own]  # noqa: PTH208
    if not bells:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        for name in bells:
            _send(sender, run_directory() / name, topic)


def _send(sender: socket.socket, path: Path, topic: str) -> None:
    try:
        sender.sendto(topic.encode(), str(path))
    except OSError as error:
        # No process listens there any more: it was killed and could not remove its socket.
        if error.errno == errno.ECONNREFUSED:
            path.unlink(missing_ok=True)
