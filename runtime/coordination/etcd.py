"""Coordination store on etcd, 3.4 or newer.

Every write is one transaction of etcd, whose revision numbers are used unchanged. The connection is opened on first
use, and again in a forked child. A watch keeps the last revision that it has returned: after a restart of etcd or a
change of its leader it resumes after that revision, and if the history is gone it lists again. A stream is open for at
most ``relist_seconds`` and then lists too: etcd before 3.5.16 may lose a removal on which it is compacted.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any
from weakref import WeakSet

from pyetcd import etcdrpc

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
from runtime.coordination.etcd_address import EtcdAddress
from runtime.coordination.etcd_connection import (
    CALL_SECONDS,
    KEEP_ALIVE,
    LEASE_GRANT,
    LEASE_REVOKE,
    RANGE,
    TXN,
    Connection,
    WatchStream,
)

_RELIST_SECONDS = 30.0
_RETRY_SECONDS = 0.2
# Maximum number of operations in a transaction of etcd. It counts those of nested transactions from its own level
# downwards: three levels of a third each pass, and the limit is then the size in bytes.
_MOST_OPERATIONS = 128
_OPERATIONS_A_LEVEL = _MOST_OPERATIONS // 3


class EtcdStore:
    """CoordinationStore in etcd, for any number of machines, processes and threads."""

    def __init__(
        self,
        address: EtcdAddress,
        *,
        clock: Clock = time.monotonic,
        keep_alive: bool = True,
        relist_seconds: float = _RELIST_SECONDS,
        call_seconds: float = CALL_SECONDS,
    ) -> None:
        """Prepare the store. ``keep_alive=False`` leaves it to the caller to ``beat`` the leases."""
        self._address = address
        self._names = _Names(address)
        self._clock = clock
        self._keep_alive = keep_alive
        self._relist_seconds = relist_seconds
        self._call_seconds = call_seconds
        self._leases: WeakSet[Lease] = WeakSet()
        self._watches: WeakSet[_EtcdWatch] = WeakSet()
        self._connecting = threading.Lock()
        self._connected: tuple[int, Connection] | None = None

    def get(self, key: str) -> Versioned | None:
        return self._names.entry(self._connection.call(RANGE, self._names.range_of(key)))

    def list(self, prefix: str) -> Listing:
        return self._names.listing(self._connection.call(RANGE, self._names.range_below(prefix)))

    def put(
        self, key: str, value: bytes, *, if_revision: int | None = None, lease: Lease | None = None
    ) -> Versioned | Conflict:
        read_back = etcdrpc.RequestOp(request_range=self._names.range_of(key))
        request = etcdrpc.TxnRequest(
            compare=self._names.comparisons(Compare(key, mod_revision=if_revision)),
            success=[self._names.request(Put(key, value, lease)), read_back],
            failure=[read_back],
        )
        answer = self._connection.call(TXN, request)
        entry = self._names.entry(answer.responses[-1].response_range)
        return entry if answer.succeeded and entry else Conflict(key, entry)

    def delete(self, key: str, *, if_revision: int | None = None) -> Committed | Conflict:
        return self.txn([Compare(key, mod_revision=if_revision)], [Delete(key)])

    def txn(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> Committed | Conflict:
        keys = list(dict.fromkeys(compare.key for compare in compares))
        request = etcdrpc.TxnRequest(
            compare=[one for compare in compares for one in self._names.comparisons(compare)],
            success=_nested([self._names.request(operation) for operation in operations]),
            failure=[etcdrpc.RequestOp(request_range=self._names.range_of(key)) for key in keys],
        )
        answer = self._connection.call(TXN, request)
        if answer.succeeded:
            return Committed(int(answer.header.revision))
        found = {key: self._names.entry(one.response_range) for key, one in zip(keys, answer.responses, strict=True)}
        broken = next(compare.key for compare in compares if not compare.holds(found[compare.key]))
        return Conflict(broken, found[broken])

    def grant(self, ttl: float, on_lost: Callable[[str], None] | None = None, outage: float = 0.0) -> Lease:
        """Grant a lease.

        etcd counts whole seconds, and grants at least one and a half of its election timeouts. Its deadline is never
        earlier than the holder's, which follows the requested ``ttl``.
        """
        sent = self._clock()
        answer = self._connection.call(LEASE_GRANT, etcdrpc.LeaseGrantRequest(TTL=math.ceil(ttl)))
        lease_id = int(answer.ID)
        keep, revoke = partial(self._keep, lease_id, ttl), partial(self._revoke, lease_id)
        lease = Lease(lease_id, ttl, sent, self._clock, keep, revoke, on_lost, outage)
        self._leases.add(lease)
        if self._keep_alive:
            lease.start()
        return lease

    def watch(self, prefix: str, after: int) -> Watch:
        watch = _EtcdWatch(self._connection, self._names, prefix, after, self._relist_seconds)
        self._watches.add(watch)
        return watch

    def close(self) -> None:
        """Stop the watches, leave the leases to expire, and close the connection."""
        for watch in list(self._watches):
            watch.close()
        for lease in list(self._leases):
            lease.release()
        with self._connecting:
            if self._connected and self._connected[0] == os.getpid():
                self._connected[1].close()

    @property
    def _connection(self) -> Connection:
        with self._connecting:
            if self._connected is None or self._connected[0] != os.getpid():
                self._connected = os.getpid(), Connection(self._address, self._call_seconds)
            return self._connected[1]

    def _keep(self, lease_id: int, ttl: float) -> bool:
        answer = self._connection.call(KEEP_ALIVE, etcdrpc.LeaseKeepAliveRequest(ID=lease_id), ttl / 10)
        return bool(answer.TTL > 0)

    def _revoke(self, lease_id: int) -> None:
        with contextlib.suppress(LeaseLost):  # it had expired already
            self._connection.call(LEASE_REVOKE, etcdrpc.LeaseRevokeRequest(ID=lease_id))


class _EtcdWatch:
    """Follows one stream after another, with a listing between them if the next could not know what it missed."""

    def __init__(self, connection: Connection, names: _Names, prefix: str, after: int, relist_seconds: float) -> None:
        self._connection = connection
        self._names = names
        self._prefix = prefix
        self._after = after
        self._relist_seconds = relist_seconds
        self._closed = threading.Event()
        self._stream: WatchStream | None = None

    def close(self) -> None:
        self._closed.set()
        if self._stream:
            self._stream.close()

    def __iter__(self) -> Iterator[Change | Relisted]:
        while not self._closed.is_set():
            try:
                yield from self._follow()
                if not self._closed.is_set():
                    yield self._relist()
            except StoreUnavailable:
                self._closed.wait(_RETRY_SECONDS)  # nothing is lost: the next stream begins at the same revision

    def _follow(self) -> Iterator[Change]:
        """Yield changes until the stream's time is over, or etcd ends it because the history is gone."""
        create = self._names.watch_below(self._prefix, self._after + 1)
        self._stream = self._connection.watch(create, self._relist_seconds)
        if self._closed.is_set():
            self._stream.close()
        for answer in self._stream:
            # An etcd that was recreated, or restored from a backup, counts from an earlier revision than ours.
            if answer.canceled or (answer.created and answer.header.revision < self._after):
                return
            for event in answer.events:
                yield self._names.change(event)
            if answer.events:
                self._after = int(answer.events[-1].kv.mod_revision)

    def _relist(self) -> Relisted:
        listing = self._names.listing(self._connection.call(RANGE, self._names.range_below(self._prefix)))
        self._after = listing.revision
        return Relisted(listing.entries, listing.revision)


class _Names:
    """Translation between our types and etcd's. etcd's keys are ours with a prefix, which no caller sees."""

    def __init__(self, address: EtcdAddress) -> None:
        self._address = address

    def range_of(self, key: str) -> Any:
        return etcdrpc.RangeRequest(key=self._address.key(key))

    def range_below(self, prefix: str) -> Any:
        return etcdrpc.RangeRequest(**self._address.span(prefix))

    def watch_below(self, prefix: str, start: int) -> Any:
        return etcdrpc.WatchCreateRequest(**self._address.span(prefix), start_revision=start)

    def comparisons(self, compare: Compare) -> Iterable[Any]:
        key = self._address.key(compare.key)
        equal = etcdrpc.Compare.EQUAL
        if compare.mod_revision is not None:
            yield etcdrpc.Compare(key=key, result=equal, target=etcdrpc.Compare.MOD, mod_revision=compare.mod_revision)
        if compare.create_revision is not None:
            yield etcdrpc.Compare(
                key=key, result=equal, target=etcdrpc.Compare.CREATE, create_revision=compare.create_revision
            )

    def request(self, operation: Operation) -> Any:
        key = self._address.key(operation.key)
        if isinstance(operation, Delete):
            return etcdrpc.RequestOp(request_delete_range=etcdrpc.DeleteRangeRequest(key=key))
        lease = operation.lease.id if operation.lease else 0
        return etcdrpc.RequestOp(request_put=etcdrpc.PutRequest(key=key, value=operation.value, lease=lease))

    def entry(self, answer: Any) -> Versioned | None:
        """Return the entry in an answer to ``range_of``."""
        return self._versioned(answer.kvs[0]) if answer.kvs else None

    def listing(self, answer: Any) -> Listing:
        """Return the listing in an answer to ``range_below``."""
        return Listing(tuple(self._versioned(kv) for kv in answer.kvs), int(answer.header.revision))

    def change(self, event: Any) -> Change:
        removed = event.type == event.DELETE
        entry = None if removed else self._versioned(event.kv)
        return Change(self._ours(event.kv.key), entry, int(event.kv.mod_revision))

    def _versioned(self, kv: Any) -> Versioned:
        revisions = int(kv.create_revision), int(kv.mod_revision)
        return Versioned(self._ours(kv.key), bytes(kv.value), *revisions, int(kv.lease))

    def _ours(self, key: bytes) -> str:
        return key.decode().removeprefix(self._address.prefix)


def _nested(requests: Sequence[Any]) -> Sequence[Any]:
    """Return the requests nested as one transaction, if they are too many for a flat one."""
    if len(requests) <= _MOST_OPERATIONS:
        return requests
    while len(requests) > _OPERATIONS_A_LEVEL:
        requests = [
            etcdrpc.RequestOp(request_txn=etcdrpc.TxnRequest(success=requests[begin : begin + _OPERATIONS_A_LEVEL]))
            for begin in range(0, len(requests), _OPERATIONS_A_LEVEL)
        ]
    return requests
