"""The seam between the runtime and what knows who is alive: a small ordered store with revisions, leases and watches.

Keys are text with ``/`` between their parts, values are bytes. Every transaction that changes a key raises the store's
revision by one; an entry remembers the revision that created it (the incarnation of a registration) and the one that
last changed it (what a compare-and-set compares). A lost race is an ordinary answer, ``Conflict``, not an exception.
Leases are hints of liveness and no mutual exclusion: whoever writes on the strength of one compares a revision as well.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from runtime.errors import RegattaError

Clock = Callable[[], float]


class CoordinationError(RegattaError):
    """Something is wrong with the coordination store. The message says what to do next."""


class StoreUnavailable(CoordinationError):
    """The store did not answer in time. Nothing is known of the last write; ask again."""


class StoreFull(StoreUnavailable):
    """The store takes no writes until somebody makes room. The write did not happen; reads go on."""


class AccessDenied(CoordinationError):
    """The store does not take this user, password or key. Asking again changes nothing."""


class TooLarge(CoordinationError):
    """The store will never take as much in one request. Nothing was written."""


class LeaseLost(CoordinationError):
    """The lease ran out or was revoked; its keys are gone. Register again as a new incarnation."""


@dataclass(frozen=True, slots=True)
class Versioned:
    """One entry. ``create_revision`` is its incarnation; ``lease`` is 0 when it lives until it is deleted."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Conflict:
    """The compare did not hold, nothing was written. ``current`` is the entry that was in the way, if there was one."""

    key: str
    current: Versioned | None


@dataclass(frozen=True, slots=True)
class Committed:
    """The transaction was written as ``revision``."""

    revision: int


@dataclass(frozen=True, slots=True)
class Compare:
    """Holds while ``key`` has these revisions. 0 means that the key does not exist, None that it does not matter."""

    key: str
    mod_revision: int | None = None
    create_revision: int | None = None

    def holds(self, current: Versioned | None) -> bool:
        mod, create = (current.mod_revision, current.create_revision) if current else (0, 0)
        return self.mod_revision in (None, mod) and self.create_revision in (None, create)


@dataclass(frozen=True, slots=True)
class Put:
    """Write ``value``; with a lease the entry goes when the lease goes, without one an earlier lease is let go."""

    key: str
    value: bytes
    lease: Lease | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove the key; no error if it is not there."""

    key: str


Operation = Put | Delete


@dataclass(frozen=True, slots=True)
class Change:
    """The key is now ``entry``, or gone if that is None, as of ``revision``."""

    key: str
    entry: Versioned | None
    revision: int


@dataclass(frozen=True, slots=True)
class Relisted:
    """All that is below the prefix at ``revision``: forget what you knew.

    Comes when the history since the asked revision is gone, and now and then as a safety net.
    """

    entries: tuple[Versioned, ...]
    revision: int


@dataclass(frozen=True, slots=True)
class Listing:
    """Entries below a prefix in order of their keys, and the revision to watch after."""

    entries: tuple[Versioned, ...]
    revision: int


class Watch(Protocol):
    """Iterating blocks until something happens and ends after ``close``, which any thread may call.

    A store that is away for a while is waited for; AccessDenied is raised where it will never answer.
    """

    def __iter__(self) -> Iterator[Change | Relisted]: ...

    def close(self) -> None: ...


class CoordinationStore(Protocol):
    """What the embedded store and etcd have in common. Any thread may call; every call may raise StoreUnavailable."""

    def get(self, key: str) -> Versioned | None: ...

    def list(self, prefix: str) -> Listing: ...

    def put(
        self, key: str, value: bytes, *, if_revision: int | None = None, lease: Lease | None = None
    ) -> Versioned | Conflict:
        """Write one entry. ``if_revision`` is the mod_revision it must have, 0 for "must not exist".

        Raises LeaseLost if the lease is gone.
        """
        ...

    def delete(self, key: str, *, if_revision: int | None = None) -> Committed | Conflict:
        """Remove one entry. Without ``if_revision`` a missing key is no error."""
        ...

    def txn(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> Committed | Conflict:
        """All operations as one revision if all compares hold, else nothing. At most one operation a key."""
        ...

    def grant(self, ttl: float, on_lost: Callable[[str], None] | None = None, outage: float = 0.0) -> Lease:
        """A lease of ``ttl`` seconds that keeps itself alive. ``on_lost(why)`` is called once, from the lease's thread:
        when the store has ended the lease, and when it has not answered for ``outage`` seconds beyond the ttl. Without
        an outage that is before anybody else can own what was held by it."""
        ...

    def watch(self, prefix: str, after: int) -> Watch:
        """Changes below ``prefix`` after revision ``after``, in order. Several changes of one key between two looks may
        come as the last of them; the last always comes."""
        ...

    def close(self) -> None: ...


class Lease:
    """A lease that keeps itself alive on its own thread, as seen by its holder.

    The holder's deadline is the monotonic time at which the last answered keepalive was *sent* plus the ttl. The
    store's own deadline is never earlier, so a holder that stops at ``fence_at`` (a margin before its deadline) has
    stopped before another can own the key: the strict way, ``outage`` 0. A holder whose writes are fenced in other ways
    may go on while the store does not answer, for so many seconds more: a store that is down gives the key to nobody.
    ``beat`` is the whole logic; the thread only calls it.
    """

    def __init__(
        self,
        lease_id: int,
        ttl: float,
        sent: float,
        clock: Clock,
        keep: Callable[[], bool],
        revoke: Callable[[], None],
        on_lost: Callable[[str], None] | None,
        outage: float = 0.0,
    ) -> None:
        """``keep`` answers whether the store still knows the lease, and gives up within a tenth of the ttl."""
        self.id = lease_id
        self.ttl = ttl
        self._deadline = sent + ttl
        self._clock = clock
        self._keep = keep
        self._revoke = revoke
        self._on_lost = on_lost
        self._outage = outage
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def fence_at(self) -> float:
        """When the holder must have stopped, on the store's clock."""
        return self._deadline - min(2.0, self.ttl / 5) + self._outage

    @property
    def alive(self) -> bool:
        """Whether the holder may still act on it. Right even when the lease's thread is late."""
        return not self._ended.is_set() and self._clock() < self.fence_at

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=f"lease-{self.id}", daemon=True)
        self._thread.start()

    def beat(self) -> float:
        """Send one keepalive or find the lease lost; returns the seconds until the next."""
        sent = self._clock()
        if sent >= self.fence_at:
            return self._lose("No keepalive was answered in time.")
        try:
            known = self._keep()
        except CoordinationError:
            # Whatever it is, the holder may go on until the fence, and has to be told then.
            return max(0.0, min(self.ttl / 10, self.fence_at - self._clock()))
        if not known:
            return self._lose("The coordination store has ended the lease.")
        self._deadline = sent + self.ttl
        return self.ttl / 3

    def revoke(self) -> None:
        """Give it up: its keys go at once, and ``on_lost`` is not called. May be called twice.

        Raises StoreUnavailable; the lease then runs out by itself.
        """
        if self._end():
            self._revoke()

    def release(self) -> None:
        """Stop keeping it alive without removing its keys; they go when it runs out."""
        self._end()

    def _run(self) -> None:
        delay = self.ttl / 3
        while not self._ended.wait(delay):
            delay = self.beat()

    def _lose(self, why: str) -> float:
        if self._end() and self._on_lost:
            self._on_lost(why)
        return 0.0

    def _end(self) -> bool:
        """True for the one caller that ended it."""
        with self._lock:
            first = not self._ended.is_set()
            self._ended.set()
        return first
