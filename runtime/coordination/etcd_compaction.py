"""Keeps the history of an etcd short, where nobody has told it to do so itself.

Only those may call this who have the right to all of etcd; jobs do not.
"""

from __future__ import annotations

import contextlib

from pyetcd import etcdrpc

from runtime.coordination.etcd_address import EtcdAddress
from runtime.coordination.etcd_connection import COMPACT, RANGE, Connection, Refused

# Somebody else compacts too, or etcd was set up anew and counts from the beginning.
_NOTHING_TO_DROP = ("required revision has been compacted", "required revision is a future revision")


def compact(site: str, revision: int) -> int:
    """Drop what was overwritten or removed up to ``revision`` (0: nothing); the revision now, for the next call.

    Called every few minutes with the answer of the call before, it leaves so much history that every watch has either
    told it or, behind, lists anew. Raises CoordinationError.
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
