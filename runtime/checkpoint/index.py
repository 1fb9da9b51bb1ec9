"""The checkpoints that count: the current and the previous one of every server, in the coordination store.

A record is written by the process that holds the server's registration; no older process can write one after it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from runtime import contract
from runtime.coordination.base import Compare, Conflict, CoordinationStore, Put, StoreUnavailable
from runtime.errors import Lost
from runtime.messages import training as messages

# How often a commit is tried while the store does not answer.
TRIES = 5


@dataclass(frozen=True)
class Entry:
    """One checkpoint. ``timestamp`` is unix time, ``size`` bytes of the file."""

    uuid: str
    file: str
    md5: str
    size: int
    version: int
    incarnation: int
    timestamp: float


@dataclass(frozen=True)
class Meta:
    """The checkpoints from which a server can be restored, the best first."""

    current: Entry
    previous: Entry | None = None

    @property
    def entries(self) -> tuple[Entry, ...]:
        return (self.current, self.previous) if self.previous else (self.current,)

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, value: bytes) -> Meta:
        body: Mapping[str, Any] = json.loads(value)
        return cls(Entry(**body["current"]), Entry(**body["previous"]) if body["previous"] else None)


# The checkpoints from which all servers can be restored, in order of index.
Generation = Sequence[Meta]


class Book:
    """The records of one attempt with ``shards`` servers. An ``owner`` compares the registration of the writer."""

    def __init__(self, store: CoordinationStore, job: str, attempt: int, shards: int) -> None:
        self._store = store
        self._keys = [contract.checkpoint_key(job, attempt, shard) for shard in range(shards)]
        self._cut_key = contract.checkpoint_cut_key(job, attempt)

    def record(self, shard: int, entry: Entry, owner: Compare) -> Meta:
        """Make ``entry`` the current checkpoint of a server; return the record.

        Raises Lost if another process has become that server, StoreUnavailable if it is not known which record counts.
        """
        key = self._keys[shard]
        for tries_left in reversed(range(TRIES)):
            try:
                return self._record(key, entry, owner)
            except StoreUnavailable:
                if not tries_left:
                    raise
        raise AssertionError("the last try returns or raises")

    def _record(self, key: str, entry: Entry, owner: Compare) -> Meta:
        stored = self._store.get(key)
        before = Meta.from_bytes(stored.value) if stored else None
        if before and before.current.uuid == entry.uuid:
            return before  # an earlier try was written and only its answer was lost
        if before and before.current.incarnation > entry.incarnation:
            raise Lost(messages.NEWER_CHECKPOINT_WRITER())
        meta = Meta(entry, before.current if before else None)
        compares = [owner, Compare(key, mod_revision=stored.mod_revision if stored else 0)]
        answer = self._store.txn(compares, [Put(key, meta.to_bytes())])
        if isinstance(answer, Conflict):
            raise Lost(messages.PSERVER_REPLACED())
        return meta

    def meta(self, shard: int) -> Meta | None:
        """The record of one server. Raises StoreUnavailable."""
        entry = self._store.get(self._keys[shard])
        return Meta.from_bytes(entry.value) if entry else None

    def generation(self) -> Generation:
        """The records of all servers; empty if one has none."""
        found = [self.meta(shard) for shard in range(len(self._keys))]
        metas = [meta for meta in found if meta]
        return metas if len(metas) == len(found) else ()

    # --- Cutting at one version ---------------------------------------------------------------------------------------
    def announce(self, version: int, owner: Compare) -> None:
        """Announce to all servers the version at which to cut."""
        self._store.txn([owner], [Put(self._cut_key, str(version).encode())])

    def announced(self) -> int:
        """The last announced version; 0 before the first."""
        entry = self._store.get(self._cut_key)
        return int(entry.value) if entry else 0
