"""Parts of messages that the lifecycle shares: counts, lists, time spans, signals. Pure."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from datetime import datetime, timedelta


def arrival(name: str, losses: Sequence[tuple[datetime, str]], now: datetime) -> str:
    """Return the message for a replica that has registered; after a restart it includes the time since the loss.

    ``losses``: time and kind of the replica's events since it was last registered.
    """
    kinds = [kind for _, kind in losses]
    if "restarted" not in kinds:
        return f"{name} has registered."
    away = f"back after {(now - losses[0][0]).total_seconds():.1f} s."
    return f"{name} was killed for the rehearsal; {away}" if "rehearsal" in kinds else f"{name} is {away}"


def signal_name(number: int) -> str:
    """Return the name of a signal: ``SIGKILL`` for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def count(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 trainer``, ``2 trainers``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def listed(names: Sequence[str]) -> str:
    """Return a list as text: ``a``, ``a and b``, ``a, b and c``."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def in_words(span: timedelta) -> str:
    """Return a duration in its largest whole unit: ``1 hour``, ``90 seconds``."""
    seconds = span.total_seconds()
    for size, noun in ((3600, "hour"), (60, "minute")):
        if seconds >= size and seconds % size == 0:
            return count(int(seconds // size), noun)
    return f"{seconds:g} second" + ("" if seconds == 1 else "s")
