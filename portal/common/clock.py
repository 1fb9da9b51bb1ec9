"""The wall clock. This is its only reader: all other code takes ``now`` as an argument."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> datetime:
    """Return the current time in UTC, with its time zone."""
    return datetime.now(UTC)
