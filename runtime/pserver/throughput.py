"""How many records a second the training takes, measured where their gradients become part of the parameters. Pure."""

from __future__ import annotations

# The name of the metric.
RECORDS_PER_SECOND = "records_per_second"
# At most one value in so long. One that is longer in coming, for a slow step, is the mean over that time.
EVERY_SECONDS = 1.0


class Rate:
    """From one update to another, so that nothing is counted twice or in part, however long the steps are.

    It begins with the first update that it sees: a server that was started again measures only what it did itself.
    """

    def __init__(self, every: float = EVERY_SECONDS) -> None:
        self._every = every
        self._last: tuple[int, float] | None = None

    def take(self, records: int, now: float) -> float | None:
        """``records`` of all updates so far; the rate since the last one that was given, if it is time for another."""
        if self._last is None:
            self._last = (records, now) if records else None
            return None
        before, at = self._last
        if records == before or now - at < self._every:
            return None
        self._last = records, now
        return (records - before) / (now - at)
