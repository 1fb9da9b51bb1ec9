"""Celery's Redis broker without a record of unacknowledged messages in Redis.

kombu records each message that a worker got and removes the record with its acknowledgement. A full Redis refuses
that, and a lost one cannot do it; Celery expects neither, and the worker ends. It also puts unacknowledged messages
back into their queue while it closes a connection, with the same end. A message is a hint, and the sweep repeats the
work of a lost one, so nothing has to be recorded or put back.
"""

from __future__ import annotations

from typing import Any

from kombu.transport import redis, virtual

_Base: Any = virtual.QoS  # without types


class _InThisProcess(redis.QoS):
    """The messages that were delivered and not acknowledged, known to this process only."""

    def append(self, message: Any, delivery_tag: str) -> None:
        _Base.append(self, message, delivery_tag)

    def ack(self, delivery_tag: str) -> None:
        _Base.ack(self, delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Forget a message, also if it shall be delivered again."""
        _Base.ack(self, delivery_tag)

    def restore_visible(self, start: int = 0, num: int = 10, interval: int = 10) -> None:
        """Put nothing back: other processes' messages are not known."""


class Channel(redis.Channel):
    """One connection to Redis."""

    QoS = _InThisProcess
    do_restore = False


class Transport(redis.Transport):
    """The transport of addresses that begin with ``redis://`` or ``rediss://``."""

    Channel = Channel
