"""Interface of the coordination store: a small ordered store with revisions, leases and watches.

Keys are text with ``/`` between their parts, values are bytes. Every transaction that changes a key raises the store's
revision by one. An entry keeps the revision that created it (the incarnation of a registration) and the one that last
changed it (which a compare-and-set compares). A lost race is an ordinary answer, ``Conflict``, not an exception. Leases
are hints of liveness and no mutual exclusion: a writer that relies on a lease compares a revision as well.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from runtime.errors import RegattaError
from runtime.messages import training as messages

Clock = Callable[[], float]


class CoordinationError(RegattaError):
    """Error of the coordination store. The message names what to do next."""


class StoreUnavailable(CoordinationError):
    """The store did not answer in time. The outcome of the last write is unknown; retry."""


class StoreFull(StoreUnavailable):
    """The store refuses writes until space is freed. The write did not happen; reads still work."""


class AccessDenied(CoordinationError):
    """The store refuses this user, password or key. A retry changes nothing."""


class TooLarge(CoordinationError):
    """The request is too large for the store. Nothing was written, and a retry changes nothing."""


class LeaseLost(CoordinationError):
    """The lease expired or was revoked, and its keys are gone. Register again as a new incarnation."""


@dataclass(frozen=True, slots=True)
class Versioned:
    """One entry. ``create_revision`` is its incarnation. ``lease`` is 0 if the entry exists until it is deleted."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Conflict:
    """The compare failed and nothing was written. ``current`` is the entry that caused it, if there was one."""

    key: str
    current: Versioned | None


@dataclass(frozen=True, slots=True)
class Committed:
    """The transaction was written as ``revision``."""

    revision: int


@dataclass(frozen=True, slots=True)
class Compare:
    """Condition that ``key`` has these revisions. 0 means that the key does not exist, None matches any revision."""

    key: str
    mod_revision: int | None = None
    create_revision: int | None = None

    def holds(self, current: Versioned | None) -> bool:
        mod, create = (current.mod_revision, current.create_revision) if current else (0, 0)
        return self.mod_revision in (None, mod) and self.create_revision in (None, create)


@dataclass(frozen=True, slots=True)
class Put:
    """Write ``value``. With a lease, the entry is removed with the lease; without one, an earlier lease is detached."""

    key: str
    value: bytes
    lease: Lease | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove the key. A missing key is no error."""

    key: str


Operation = Put | Delete


@dataclass(frozen=True, slots=True)
class Change:
    """``key`` is ``entry`` as of ``revision``, or removed if that is None."""

    key: str
    entry: Versioned | None
    revision: int


@dataclass(frozen=True, slots=True)
class Relisted:
    """All entries below the prefix at ``revision``. They replace everything that was received before.

    Sent when the history since the requested revision is gone, and periodically as a safety net.
    """

    entries: tuple[Versioned, ...]
    revision: int


@dataclass(frozen=True, slots=True)
class Listing:
    """Entries below a prefix in order of their keys, and the revision from which to watch."""

    entries: tuple[Versioned, ...]
    revision: int


class Watch(Protocol):
    """Stream of changes. Iterating blocks until the next change and ends after ``close``, which any thread may call.

    The watch waits for a store that is unavailable for a while. It raises AccessDenied if the store will never answer.
    """

    def __iter__(self) -> Iterator[Change | Relisted]: ...

    def close(self) -> None: ...


class CoordinationStore(Protocol):
    """Common interface of the embedded store and etcd. Any thread may call; every call may raise StoreUnavailable."""

    def get(self, key: str) -> Versioned | None: ...

    def list(self, prefix: str) -> Listing: ...

    def put(
        self, key: str, value: bytes, *, if_revision: int | None = None, lease: Lease | None = None
    ) -> Versioned | Conflict:
        """Write one entry. ``if_revision`` is its required mod_revision, 0 for "must not exist".

        Raises LeaseLost if the lease is gone.
        """
        ...

    def delete(self, key: str, *, if_revision: int | None = None) -> Committed | Conflict:
        """Remove one entry. Without ``if_revision`` a missing key is no error."""
        ...

    def txn(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> Committed | Conflict:
        """Apply all operations as one revision if all compares hold, else none. At most one operation per key."""
        ...

    def grant(self, ttl: float, on_lost: Callable[[str], None] | None = None, outage: float = 0.0) -> Lease:
        """Grant a lease of ``ttl`` seconds that keeps itself alive.

        ``on_lost(why)`` is called once, from the lease's thread: when the store has ended the lease, and when it has
        not answered for ``outage`` seconds beyond the ttl. Without an outage the call comes before another process can
        own the lease's keys.
        """
        ...

    def watch(self, prefix: str, after: int) -> Watch:
        """Watch changes below ``prefix`` after revision ``after``, in order.

        Several changes of one key between two polls may be merged into the last of them. The last change is always
        sent.
        """
        ...

    def close(self) -> None: ...


class Lease:
    """Lease that keeps itself alive on its own thread, as its holder uses it.

    The holder's deadline is the monotonic time at which the last answered keepalive was *sent* plus the ttl. The
    store's own deadline is never earlier, so a holder that stops at ``fence_at`` (a margin before its deadline) has
    stopped before another process can own the key. This is the strict mode, ``outage`` 0. A holder whose writes are
    fenced in other ways may continue for ``outage`` more seconds while the store does not answer: a store that is down
    grants the key to no other process. ``beat`` is the whole logic; the thread only calls it.
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
        """Create the lease. ``keep`` returns whether the store still has it, and gives up within a tenth of the ttl."""
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
        """Time by which the holder must have stopped, on the store's clock."""
        return self._deadline - min(2.0, self.ttl / 5) + self._outage

    @property
    def alive(self) -> bool:
        """Whether the holder may still rely on the lease. Correct even when the lease's thread is late."""
        return not self._ended.is_set() and self._clock() < self.fence_at

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=f"lease-{self.id}", daemon=True)
        self._thread.start()

    def beat(self) -> float:
        """Send one keepalive or detect the loss of the lease. Return the seconds until the next beat."""
        sent = self._clock()
        if sent >= self.fence_at:
            return self._lose(messages.KEEPALIVE_UNANSWERED())
        try:
            known = self._keep()
        except CoordinationError:
            # Whatever the error is, the holder may continue until the fence, and must be notified then.
            return max(0.0, min(self.ttl / 10, self.fence_at - self._clock()))
        if not known:
            return self._lose(messages.LEASE_ENDED())
        self._deadline = sent + self.ttl
        return self.ttl / 3

    def revoke(self) -> None:
        """Revoke the lease: its keys are removed at once, and ``on_lost`` is not called. May be called twice.

        Raises StoreUnavailable; the lease then expires by itself.
        """
        if self._end():
            self._revoke()

    def release(self) -> None:
        """Stop the keepalives without removing the keys, which are removed when the lease expires."""
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
        """Return True to the one caller that ended the lease."""
        with self._lock:
            first = not self._ended.is_set()
            self._ended.set()
        return first
