"""The wall clock, in one place, so that everything else takes ``now`` as an argument."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> datetime:
    """The present time, with its zone (UTC)."""
    return datetime.now(UTC)
