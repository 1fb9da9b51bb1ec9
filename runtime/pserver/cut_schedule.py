"""When a shard is cut for a checkpoint.

In synchronous training all servers cut at the same version. The first server announces a future version, and each
server keeps its state when it reaches that version.
"""

from __future__ import annotations

import math

from runtime.checkpoint.index import Book
from runtime.coordination.base import Compare
from runtime.pserver.locked_shard import LockedShard

LOOK_SECONDS = 0.5
# The version to cut at is announced this long before it comes, so that every server receives it.
NOTICE_SECONDS = 2.0


class CutSchedule:
    """Orders a cut every ``seconds``. ``index`` is this server's number of ``servers``, ``owner`` its registration.

    Servers that are in step cut only at versions that the first one has announced, each at most once. A failed
    announcement changes nothing and is repeated. Used by one thread.
    """

    def __init__(
        self, locked: LockedShard, index: int, servers: int, book: Book, owner: Compare, seconds: float, now: float
    ) -> None:
        self._locked = locked
        self._shard = locked.shard
        self._index = index
        self._servers = servers
        self._book = book
        self._owner = owner
        self._seconds = seconds
        self._due = now + seconds
        self._seen = (self._shard.version, now)
        self._announced = 0  # the last version that was announced

    def order(self, now: float) -> None:
        """Decide at which version to cut, or read it from the first server's announcement. Raises CoordinationError."""
        together = self._servers > 1 and self._shard.mode.synchronous
        if together and self._index:
            version = self._book.announced()
            if version > self._announced:
                self._announced = version
                self._shard.state.prepare_cut()
                self._shard.cut_at = version
        elif now >= self._due:
            if together:
                self._announce(now)
            else:
                self._shard.state.prepare_cut()
                with self._locked as shard:
                    shard.cut()
            self._due = now + self._seconds

    def _announce(self, now: float) -> None:
        """Announce a version that comes after all servers have received the announcement."""
        (before, at), present = self._seen, self._shard.version
        if self._shard.cut_at is not None and self._shard.cut_at > present:
            return  # the version announced before is still to come
        rate = (present - before) / max(now - at, LOOK_SECONDS)
        version = present + 1 + math.ceil(rate * NOTICE_SECONDS)
        self._seen = (present, now)
        self._shard.state.prepare_cut()
        self._book.announce(version, self._owner)
        self._shard.cut_at = version
