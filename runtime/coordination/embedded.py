"""Embedded coordination store: one SQLite file shared by the processes of one machine.

Every change runs in one IMMEDIATE transaction, which also removes the entries of expired leases. A read that finds an
expired lease becomes a write first. Deadlines are on the machine-wide monotonic clock, so a jump of the wall clock
changes nothing. After a restart of the machine that clock begins near zero: a deadline further ahead than its lease's
ttl can only be from before the restart and counts as passed.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from weakref import WeakSet

from runtime.coordination.base import (
    Change,
    Clock,
    Committed,
    Compare,
    Conflict,
    Delete,
    Lease,
    LeaseLost,
    Listing,
    Operation,
    Put,
    Relisted,
    StoreUnavailable,
    Versioned,
    Watch,
)
from runtime.messages import training as messages

_SCHEMA = """
CREATE TABLE IF NOT EXISTS head (
    one INTEGER PRIMARY KEY CHECK (one = 1), revision INTEGER NOT NULL, compacted INTEGER NOT NULL
);
INSERT OR IGNORE INTO head VALUES (1, 0, 0);
CREATE TABLE IF NOT EXISTS leases (id INTEGER PRIMARY KEY AUTOINCREMENT, ttl REAL NOT NULL, deadline REAL NOT NULL);
CREATE TABLE IF NOT EXISTS entries (
    key TEXT PRIMARY KEY, value BLOB NOT NULL, create_revision INTEGER NOT NULL, mod_revision INTEGER NOT NULL,
    lease INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS entries_by_lease ON entries (lease) WHERE lease != 0;
CREATE TABLE IF NOT EXISTS removals (key TEXT PRIMARY KEY, revision INTEGER NOT NULL) WITHOUT ROWID;
"""
_FIELDS = "key, value, create_revision, mod_revision, lease"
_EXPIRED = "deadline <= :now OR deadline > :now + ttl"
_LAST_CHARACTER = "\U0010ffff"  # sorts after every key that continues a prefix
_BUSY_SECONDS = 5.0
_POLL_SECONDS = 0.05
_RELIST_SECONDS = 30.0
_REMOVALS_KEPT = 1000


class EmbeddedStore:
    """CoordinationStore in one file, for any number of processes and threads. It must not be used across a fork."""

    def __init__(
        self,
        path: str | Path,
        *,
        clock: Clock = time.monotonic,
        keep_alive: bool = True,
        poll_seconds: float = _POLL_SECONDS,
        relist_seconds: float = _RELIST_SECONDS,
    ) -> None:
        """Open the store.

        ``keep_alive=False`` leaves it to the caller to ``beat`` the leases, for callers with their own clock.
        """
        self._path = Path(path)
        self._clock = clock
        self._keep_alive = keep_alive
        self._poll_seconds = poll_seconds
        self._relist_seconds = relist_seconds
        self._lock = threading.Lock()
        self._leases: WeakSet[Lease] = WeakSet()
        self._watches: WeakSet[_PollingWatch] = WeakSet()
        self._connection = _open(self._path, _BUSY_SECONDS)

    def get(self, key: str) -> Versioned | None:
        with self._reading() as connection:
            return _get(connection, key)

    def list(self, prefix: str) -> Listing:
        with self._reading() as connection:
            return Listing(_below(connection, prefix), _revision(connection))

    def put(
        self, key: str, value: bytes, *, if_revision: int | None = None, lease: Lease | None = None
    ) -> Versioned | Conflict:
        with self._lock, _writing(self._connection, self._clock) as connection:
            current = _get(connection, key)
            if not Compare(key, mod_revision=if_revision).holds(current):
                return Conflict(key, current)
            revision = _apply(connection, [Put(key, value, lease)])
        return Versioned(
            key, value, current.create_revision if current else revision, revision, lease.id if lease else 0
        )

    def delete(self, key: str, *, if_revision: int | None = None) -> Committed | Conflict:
        return self.txn([Compare(key, mod_revision=if_revision)], [Delete(key)])

    def txn(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> Committed | Conflict:
        with self._lock, _writing(self._connection, self._clock) as connection:
            for compare in compares:
                current = _get(connection, compare.key)
                if not compare.holds(current):
                    return Conflict(compare.key, current)
            return Committed(_apply(connection, operations))

    def grant(self, ttl: float, on_lost: Callable[[str], None] | None = None, outage: float = 0.0) -> Lease:
        sent = self._clock()
        with self._lock, _writing(self._connection, self._clock) as connection:
            row = connection.execute("INSERT INTO leases (ttl, deadline) VALUES (?, ?)", (ttl, self._clock() + ttl))
            lease_id = int(row.lastrowid or 0)
        keeper = _Keeper(self._path, lease_id, ttl, self._clock)
        lease = Lease(lease_id, ttl, sent, self._clock, keeper.keep, lambda: self._revoke(lease), on_lost, outage)
        self._leases.add(lease)
        if self._keep_alive:
            lease.start()
        return lease

    def watch(self, prefix: str, after: int) -> Watch:
        watch = _PollingWatch(self._path, prefix, after, self._clock, self._poll_seconds, self._relist_seconds)
        self._watches.add(watch)
        return watch

    def close(self) -> None:
        """Stop the watches, leave the leases to expire, and close the file."""
        for watch in list(self._watches):
            watch.close()
        for lease in list(self._leases):
            lease.release()
        with self._lock:
            self._connection.close()

    def _revoke(self, lease: Lease) -> None:
        with self._lock, _writing(self._connection, self._clock) as connection:
            _end_leases(connection, [lease.id])

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._lock, _reading(self._connection, self._clock) as connection:
            yield connection


class _Keeper:
    """Renews one lease over a connection of its own, so that it never waits for the store's other callers."""

    def __init__(self, path: Path, lease_id: int, ttl: float, clock: Clock) -> None:
        self._path = path
        self._lease_id = lease_id
        self._ttl = ttl
        self._clock = clock

    def keep(self) -> bool:
        connection = _open(self._path, self._ttl / 10)
        try:
            with _writing(connection, self._clock):
                deadline = self._clock() + self._ttl
                renewed = connection.execute("UPDATE leases SET deadline = ? WHERE id = ?", (deadline, self._lease_id))
                return renewed.rowcount == 1
        finally:
            connection.close()


class _PollingWatch:
    """Polls the store's revision every 50 ms and reads the changes since the last poll."""

    def __init__(
        self, path: Path, prefix: str, after: int, clock: Clock, poll_seconds: float, relist_seconds: float
    ) -> None:
        self._path = path
        self._prefix = prefix
        self._after = after
        self._clock = clock
        self._poll_seconds = poll_seconds
        self._polls_to_relist = max(1, round(relist_seconds / poll_seconds))
        self._closed = threading.Event()

    def close(self) -> None:
        self._closed.set()

    def __iter__(self) -> Iterator[Change | Relisted]:
        connection = _open(self._path, _BUSY_SECONDS)
        polls = 0
        try:
            while not self._closed.is_set():
                polls += 1
                yield from self._poll(connection, relist=polls % self._polls_to_relist == 0)
                self._closed.wait(self._poll_seconds)
        finally:
            connection.close()

    def _poll(self, connection: sqlite3.Connection, *, relist: bool) -> Iterable[Change | Relisted]:
        try:
            with _reading(connection, self._clock):
                revision, compacted = connection.execute("SELECT revision, compacted FROM head").fetchone()
                if relist or self._after < compacted or revision < self._after:
                    found: list[Change | Relisted] = [Relisted(_below(connection, self._prefix), revision)]
                elif revision > self._after:
                    found = list(_changes(connection, self._prefix, self._after))
                else:
                    found = []
        except StoreUnavailable:
            return []  # nothing is lost: the next poll reads from the same revision
        self._after = revision
        return found


def _open(path: Path, busy_seconds: float) -> sqlite3.Connection:
    try:
        connection = sqlite3.connect(path, timeout=busy_seconds, isolation_level=None, check_same_thread=False)
        _prepare(connection, busy_seconds)
    except sqlite3.Error as error:
        raise StoreUnavailable(messages.STORE_NOT_OPENED(path=path, error=error)) from error
    return connection


def _prepare(connection: sqlite3.Connection, busy_seconds: float) -> None:
    # WAL survives the end of any process. Only a power cut may lose the last transactions, and that ends every lease.
    connection.execute("PRAGMA synchronous = NORMAL")
    if connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
        return
    # Several processes may open the new file at once. Changing the journal mode does not wait for the busy timeout.
    give_up = time.monotonic() + busy_seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
            return
        except sqlite3.OperationalError:
            if time.monotonic() >= give_up:
                raise
            time.sleep(0.01)


@contextmanager
def _transaction(connection: sqlite3.Connection, begin: str) -> Iterator[None]:
    try:
        connection.execute(begin)
        try:
            yield
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise StoreUnavailable(messages.STORE_NOT_RESPONDING(error=error)) from error


@contextmanager
def _writing(connection: sqlite3.Connection, clock: Clock) -> Iterator[sqlite3.Connection]:
    with _transaction(connection, "BEGIN IMMEDIATE"):
        _expire(connection, clock())
        yield connection


@contextmanager
def _reading(connection: sqlite3.Connection, clock: Clock) -> Iterator[sqlite3.Connection]:
    expired = False
    with _transaction(connection, "BEGIN"):
        expired = bool(_expired(connection, clock()))
        if not expired:
            yield connection
    if expired:
        with _writing(connection, clock):
            yield connection


def _expired(connection: sqlite3.Connection, now: float) -> list[int]:
    return [row[0] for row in connection.execute(f"SELECT id FROM leases WHERE {_EXPIRED}", {"now": now})]  # noqa: S608


def _expire(connection: sqlite3.Connection, now: float) -> None:
    expired = _expired(connection, now)
    if expired:
        _end_leases(connection, expired)


def _end_leases(connection: sqlite3.Connection, leases: Sequence[int]) -> None:
    keys: list[str] = []
    for lease in leases:
        keys += [row[0] for row in connection.execute("SELECT key FROM entries WHERE lease = ?", (lease,))]
        connection.execute("DELETE FROM leases WHERE id = ?", (lease,))
    if keys:
        _apply(connection, [Delete(key) for key in keys])


def _apply(connection: sqlite3.Connection, operations: Sequence[Operation]) -> int:
    """Write the operations as the next revision. Without a change, the revision stays."""
    revision = _revision(connection) + 1
    puts = [operation for operation in operations if isinstance(operation, Put)]
    _put_all(connection, puts, revision)
    removed = [
        _delete(connection, operation.key, revision) for operation in operations if isinstance(operation, Delete)
    ]
    if not puts and not any(removed):
        return revision - 1
    connection.execute("UPDATE head SET revision = ?", (revision,))
    return revision


def _put_all(connection: sqlite3.Connection, puts: Sequence[Put], revision: int) -> None:
    for put in {put.lease.id: put for put in puts if put.lease}.values():
        _check_lease(connection, put)
    rows = [(put.key, put.value, revision, revision, put.lease.id if put.lease else 0) for put in puts]
    connection.executemany(
        "INSERT INTO entries VALUES (?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET "
        "value = excluded.value, mod_revision = excluded.mod_revision, lease = excluded.lease",
        rows,
    )
    if connection.execute("SELECT 1 FROM removals LIMIT 1").fetchone():
        connection.executemany("DELETE FROM removals WHERE key = ?", [(put.key,) for put in puts])


def _check_lease(connection: sqlite3.Connection, put: Put) -> None:
    lease = put.lease.id if put.lease else 0
    if not connection.execute("SELECT 1 FROM leases WHERE id = ?", (lease,)).fetchone():
        raise LeaseLost(messages.LEASE_OF_KEY_GONE(key=put.key))


def _delete(connection: sqlite3.Connection, key: str, revision: int) -> bool:
    if not connection.execute("DELETE FROM entries WHERE key = ?", (key,)).rowcount:
        return False
    connection.execute("INSERT OR REPLACE INTO removals VALUES (?, ?)", (key, revision))
    _compact(connection)
    return True


def _compact(connection: sqlite3.Connection) -> None:
    """Drop old removals. A watch from before them has to list again."""
    if connection.execute("SELECT count(*) FROM removals").fetchone()[0] <= _REMOVALS_KEPT:
        return
    newest = "SELECT revision FROM removals ORDER BY revision DESC LIMIT 1 OFFSET ?"
    horizon = connection.execute(newest, (_REMOVALS_KEPT // 2,)).fetchone()[0]
    connection.execute("DELETE FROM removals WHERE revision <= ?", (horizon,))
    connection.execute("UPDATE head SET compacted = ?", (horizon,))


def _revision(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT revision FROM head").fetchone()[0])


def _get(connection: sqlite3.Connection, key: str) -> Versioned | None:
    row = connection.execute(f"SELECT {_FIELDS} FROM entries WHERE key = ?", (key,)).fetchone()  # noqa: S608
    return Versioned(*row) if row else None


def _below(connection: sqlite3.Connection, prefix: str, after: int = 0) -> tuple[Versioned, ...]:
    query = f"SELECT {_FIELDS} FROM entries WHERE key >= ? AND key < ? AND mod_revision > ? ORDER BY key"  # noqa: S608
    return tuple(Versioned(*row) for row in connection.execute(query, (prefix, prefix + _LAST_CHARACTER, after)))


def _changes(connection: sqlite3.Connection, prefix: str, after: int) -> list[Change]:
    put = [Change(entry.key, entry, entry.mod_revision) for entry in _below(connection, prefix, after)]
    query = "SELECT key, revision FROM removals WHERE key >= ? AND key < ? AND revision > ?"
    gone = connection.execute(query, (prefix, prefix + _LAST_CHARACTER, after))
    removed = [Change(key, None, revision) for key, revision in gone]
    return sorted(put + removed, key=lambda change: (change.revision, change.key))
