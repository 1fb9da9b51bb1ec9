"""Restart policy of the portal's child processes. Pure: times are seconds of any steady clock, passed in by the
caller."""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace

from portal.common.messages import requests as messages

FIRST_DELAY = 0.5
LONGEST_DELAY = 30.0
# A child that ran this long had started well: its next end counts as a first failure again.
STEADY_SECONDS = 30.0


@dataclass(frozen=True)
class Child:
    """One process to keep running. ``retry_at`` is when to start it next, None while it runs."""

    name: str
    started: float = 0.0
    failures: int = 0
    retry_at: float | None = 0.0

    @property
    def running(self) -> bool:
        return self.retry_at is None


def due(child: Child, now: float) -> bool:
    """Return whether to start it now."""
    return child.retry_at is not None and now >= child.retry_at


def began(child: Child, now: float) -> Child:
    return replace(child, started=now, retry_at=None)


def ended(child: Child, now: float) -> Child:
    """Record an unexpected end: schedule the next start after a delay that doubles with every failure in a row."""
    failures = 1 if now - child.started >= STEADY_SECONDS else child.failures + 1
    delay = min(FIRST_DELAY * 2 ** (failures - 1), LONGEST_DELAY)
    return replace(child, failures=failures, retry_at=now + delay)


def line_of_end(child: Child, code: int, now: float) -> str:
    """Return the line for the terminal about an end; ``code`` as from ``Popen.returncode``."""
    delay = max(0.0, (child.retry_at or now) - now)
    return f"{child.name} ended ({how(code)}); starting it again in {delay:.1f} s."


def how(code: int) -> str:
    """Return ``exit code 3`` or ``signal SIGKILL``."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return messages.SIGNAL_NUMBER(number=signal.Signals(-code).name)
    except ValueError:
        return messages.SIGNAL_NUMBER(number=-code)
