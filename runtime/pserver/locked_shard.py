"""The lock of a shard that several threads use."""

from __future__ import annotations

import threading

from runtime.pserver.shard import Shard


class LockedShard:
    """A context in which its thread alone uses the shard: ``with locked as shard``. It may be entered again inside.

    ``changed`` has the same lock; it is notified after every event, and when a block of the next version is made.
    """

    def __init__(self, shard: Shard) -> None:
        self.shard = shard
        self.changed = threading.Condition()

    def __enter__(self) -> Shard:
        self.changed.acquire()
        return self.shard

    def __exit__(self, *_: object) -> None:
        self.changed.release()
