"""Which checkpoints count: for every server the current one and the previous one, in the coordination store.

The record of server i of n is at ``<job>/checkpoints/<n>/<i>``: with another number of servers the blocks lie
elsewhere, so the records of the old servers stay until all the new ones have theirs. A record is written by the process
that holds the server's registration, and by no older one after it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from runtime import contract
from runtime.coordination.base import Compare, Conflict, CoordinationStore, Delete, Put, StoreUnavailable
from runtime.errors import Lost

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
    """What a server can be restored from, the best first."""

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


# The records of all servers of one number of servers, in order of index.
Generation = Sequence[Meta]


class Book:
    """The records of one job. An ``owner`` compares the registration of the process that writes."""

    def __init__(self, store: CoordinationStore, job: str) -> None:
        self._store = store
        self._job = job

    def record(self, shard: int, shards: int, entry: Entry, owner: Compare) -> Meta:
        """Make ``entry`` the current checkpoint of a server; gives what counts now.

        Raises Lost if another process is that server now, StoreUnavailable if it is not known what counts.
        """
        key = contract.checkpoint_key(self._job, shards, shard)
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
            return before  # an earlier try was written, only its answer was lost
        if before and before.current.incarnation > entry.incarnation:
            raise Lost("A newer process has written checkpoints for this parameter server; this one has to end.")
        meta = Meta(entry, before.current if before else None)
        compares = [owner, Compare(key, mod_revision=stored.mod_revision if stored else 0)]
        answer = self._store.txn(compares, [Put(key, meta.to_bytes())])
        if isinstance(answer, Conflict):
            raise Lost("Another process is this parameter server now; this one has to end.")
        return meta

    def generation(self) -> Generation:
        """The newest set of records in which every server has one; empty if there is none."""
        return max(self._generations().values(), key=_newest, default=())

    # --- Cutting at one version --------------------------------------------------------------------------------------
    def announce(self, shards: int, version: int, owner: Compare) -> None:
        """Say to all servers at which version to cut."""
        self._store.txn([owner], [Put(contract.checkpoint_cut_key(self._job, shards), str(version).encode())])

    def announced(self, shards: int) -> int:
        """The version that was announced last; 0 before the first."""
        entry = self._store.get(contract.checkpoint_cut_key(self._job, shards))
        return int(entry.value) if entry else 0

    # --- After a change of the number of servers ---------------------------------------------------------------------
    def retire_others(self, shards: int, owner: Compare) -> bool:
        """Forget the records of other numbers of servers, if all servers of this number have theirs: then True."""
        if shards not in self._generations():
            return False
        prefix, ours = contract.checkpoints_prefix(self._job), f"{shards}/"
        keys = [entry.key for entry in self._store.list(prefix).entries]
        old = [key for key in keys if not key.removeprefix(prefix).startswith(ours)]
        return not old or not isinstance(self._store.txn([owner], [Delete(key) for key in old]), Conflict)

    def _generations(self) -> dict[int, Generation]:
        """The complete ones, by their number of servers."""
        prefix = contract.checkpoints_prefix(self._job)
        records: dict[int, dict[int, Meta]] = {}
        for entry in self._store.list(prefix).entries:
            shards, shard = map(int, entry.key.removeprefix(prefix).split("/"))
            records.setdefault(shards, {})[shard] = Meta.from_bytes(entry.value)
        return {
            shards: tuple(found[shard] for shard in range(shards))
            for shards, found in records.items()
            if found.keys() >= set(range(shards))
        }


def _newest(generation: Generation) -> int:
    return max(meta.current.incarnation for meta in generation)
