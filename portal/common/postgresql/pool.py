"""A bounded pool of database connections, for the threads of one process.

A thread connects by itself when no connection is idle, so an error of the server reaches the caller at once and with
its own text, and the first call after an outage succeeds. One broken connection condemns all that were opened before:
after a restart of the server none of them works. Nothing runs in the background.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

# Idle connections are closed after this time, and every connection at the first return after its lifetime. In seconds.
IDLE_SECONDS = 60.0
LIFETIME_SECONDS = 900.0
# How long a thread waits for a connection of a full pool.
WAIT_SECONDS = 10.0

Connection = TypeVar("Connection")


class PoolFull(Exception):
    """All connections stayed in use for as long as a thread may wait."""


@dataclass(frozen=True)
class _Origin:
    """Where a connection comes from: its generation, and when it was opened."""

    generation: int
    opened: float


@dataclass(frozen=True)
class _Idle(Generic[Connection]):
    """A connection in the pool, and when it was returned."""

    connection: Connection
    origin: _Origin
    since: float


class Pool(Generic[Connection]):
    """At most ``size`` connections.

    ``works`` returns at once whether an idle connection is still open; ``close`` closes one and raises nothing. Every
    method can be called from any thread.
    """

    def __init__(
        self,
        size: int,
        works: Callable[[Connection], bool],
        close: Callable[[Connection], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._size, self._works, self._close, self._clock = size, works, close, clock
        self._changed = threading.Condition()
        # The connection that was returned last is on the right.
        self._idle: deque[_Idle[Connection]] = deque()
        # By the identity of the connection. A thread that ends without returning its connection frees the place.
        self._taken: dict[int, tuple[_Origin, weakref.finalize[Any, Any]]] = {}
        # Connections that are being opened, taken or idle.
        self._open = 0
        self._generation = 0

    @property
    def open(self) -> int:
        """Number of connections to the server."""
        return self._open

    @property
    def taken(self) -> int:
        """Number of connections in use."""
        return len(self._taken)

    @property
    def is_full(self) -> bool:
        """Whether all connections are in use."""
        return self.taken >= self._size

    def take(self, connect: Callable[[], Connection], wait_seconds: float = WAIT_SECONDS) -> Connection:
        """Return an idle connection or a new one. Raises PoolFull, and what ``connect`` raises."""
        while idle := self._take_idle_or_place(wait_seconds):
            if self._works(idle.connection):
                self._note_taken(idle.connection, idle.origin)
                return idle.connection
            self._discard(idle.connection, idle.origin, is_broken=True)
        origin = _Origin(self._generation, self._clock())
        try:
            connection = connect()
        except BaseException:
            self._free_place()
            raise
        self._note_taken(connection, origin)
        return connection

    def give_back(self, connection: Connection, *, is_clean: bool) -> None:
        """Return a connection that was taken. It is closed unless it is clean: without an error, and outside a
        transaction."""
        with self._changed:
            origin, lost = self._taken.pop(id(connection))
        lost.detach()
        now = self._clock()
        if is_clean and origin.generation == self._generation and now - origin.opened < LIFETIME_SECONDS:
            with self._changed:
                self._idle.append(_Idle(connection, origin, now))
                self._changed.notify()
        else:
            self._discard(connection, origin, is_broken=not is_clean and not self._works(connection))
        self._close_expired(now)

    def close_idle(self) -> None:
        """Close all idle connections; those in use are closed when they are returned."""
        with self._changed:
            self._generation += 1
            idle, self._idle = list(self._idle), deque()
        for one in idle:
            self._discard(one.connection, one.origin, is_broken=False)

    def _take_idle_or_place(self, wait_seconds: float) -> _Idle[Connection] | None:
        """Return the connection that was returned last, or None with the right to open one. Raises PoolFull."""
        until = self._clock() + wait_seconds
        with self._changed:
            while not self._idle:
                if self._open < self._size:
                    self._open += 1
                    return None
                remaining = until - self._clock()
                if remaining <= 0:
                    raise PoolFull(f"all {self._size} connections were in use for {wait_seconds:g} seconds")
                self._changed.wait(remaining)
            return self._idle.pop()

    def _note_taken(self, connection: Connection, origin: _Origin) -> None:
        lost = weakref.finalize(connection, self._lose, id(connection))
        lost.atexit = False  # type: ignore[misc]  # the stubs lack it among the slots
        with self._changed:
            self._taken[id(connection)] = origin, lost

    def _lose(self, identity: int) -> None:
        # The garbage collector may call this in a thread that holds the lock: its owner may acquire it again.
        with self._changed:
            self._taken.pop(identity, None)
            self._open -= 1
            self._changed.notify()

    def _close_expired(self, now: float) -> None:
        expired = []
        with self._changed:
            while self._idle and now - self._idle[0].since > IDLE_SECONDS:
                expired.append(self._idle.popleft())
        for one in expired:
            self._discard(one.connection, one.origin, is_broken=False)

    def _discard(self, connection: Connection, origin: _Origin, *, is_broken: bool) -> None:
        self._close(connection)
        self._free_place()
        if is_broken and origin.generation == self._generation:
            self.close_idle()

    def _free_place(self) -> None:
        with self._changed:
            self._open -= 1
            self._changed.notify()


# The pools of this process, by server, database, account and process.
POOLS: dict[tuple[object, ...], Pool[Any]] = {}
_lock = threading.Lock()


def pool_of(identity: tuple[object, ...], make: Callable[[], Pool[Any]]) -> Pool[Any]:
    """Return the pool of this process with this identity; the first call makes it. A forked process has its own."""
    key = (os.getpid(), *identity)
    with _lock:
        if key not in POOLS:
            POOLS[key] = make()
        return POOLS[key]


def is_full() -> bool:
    """Return whether all connections of a pool of this process are in use."""
    return any(pool.is_full for pool in list(POOLS.values()))


def close_idle() -> None:
    """Close the idle connections of all pools of this process."""
    for pool in list(POOLS.values()):
        pool.close_idle()


def counted(count: Callable[[Pool[Any]], int]) -> int:
    """Return a sum over the pools of this process."""
    return sum(count(pool) for pool in list(POOLS.values()))
