"""Compaction of an etcd that does not compact itself, which keeps its history short.

Callers need access to all of etcd, which jobs do not have.
"""

from __future__ import annotations

import contextlib

from pyetcd import etcdrpc

from runtime.coordination.etcd_address import EtcdAddress
from runtime.coordination.etcd_connection import COMPACT, RANGE, Connection, Refused

# Something else compacts too, or etcd was recreated and counts from the beginning.
_NOTHING_TO_DROP = ("required revision has been compacted", "required revision is a future revision")


def compact(site: str, revision: int) -> int:
    """Drop what was overwritten or removed up to ``revision`` (0: nothing). Return the current revision, for the next
    call.

    Called every few minutes with the result of the previous call, it keeps enough history for every watch: a watch has
    either returned the dropped changes or, if it is behind, lists again. Raises CoordinationError.
    """
    address = EtcdAddress.parse(site)
    with contextlib.closing(Connection(address)) as connection:
        here = etcdrpc.RangeRequest(**address.span("/"), count_only=True)
        now = int(connection.call(RANGE, here).header.revision)
        if revision:
            _drop(connection, revision)
    return now


def _drop(connection: Connection, revision: int) -> None:
    try:
        connection.call(COMPACT, etcdrpc.CompactionRequest(revision=revision))
    except Refused as refusal:
        if not any(text in str(refusal) for text in _NOTHING_TO_DROP):
            raise
