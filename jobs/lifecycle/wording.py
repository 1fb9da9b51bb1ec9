"""Parts of messages that the lifecycle shares: counts, lists, time spans, signals. Pure."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from datetime import datetime, timedelta

from jobs.messages import jobs as messages
from runtime.messages import Message, Template


def arrival(name: str, losses: Sequence[tuple[datetime, str]], now: datetime) -> str:
    """Return the message for a replica that has registered; after a restart it includes the time since the loss.

    ``losses``: time and kind of the replica's events since it was last registered.
    """
    kinds = [kind for _, kind in losses]
    if "restarted" not in kinds:
        return messages.REPLICA_REGISTERED(replica=name)
    length = f"{(now - losses[0][0]).total_seconds():.1f}"
    if "rehearsal" in kinds:
        return messages.REHEARSAL_KILL_RECOVERED(replica=name, length=length)
    return messages.REPLICA_RECOVERED(replica=name, length=length)


def signal_name(number: int) -> str:
    """Return the name of a signal: ``SIGKILL`` for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return messages.SIGNAL_NUMBER(number=number)


_TRAINERS = (messages.TRAINER_COUNT_ONE, messages.TRAINER_COUNT)
_PSERVERS = (messages.PSERVER_COUNT_ONE, messages.PSERVER_COUNT)
_HOURS = (messages.HOUR_COUNT_ONE, messages.HOUR_COUNT)
_MINUTES = (messages.MINUTE_COUNT_ONE, messages.MINUTE_COUNT)
_SECONDS = (messages.SECOND_COUNT_ONE, messages.SECOND_COUNT)


def trainers(count: int) -> Message:
    """Return a number of trainers: ``1 trainer``, ``2 trainers``."""
    return _counted(count, _TRAINERS)


def pservers(count: int) -> Message:
    """Return a number of parameter servers: ``1 parameter server``, ``2 parameter servers``."""
    return _counted(count, _PSERVERS)


def _counted(count: float, noun: tuple[Template, Template]) -> Message:
    one, several = noun
    return one(count=1) if count == 1 else several(count=f"{count:g}")


def in_words(span: timedelta) -> Message:
    """Return a duration in its largest whole unit: ``1 hour``, ``90 seconds``."""
    seconds = span.total_seconds()
    for size, noun in ((3600, _HOURS), (60, _MINUTES)):
        if seconds >= size and seconds % size == 0:
            return _counted(seconds // size, noun)
    return _counted(seconds, _SECONDS)
