"""The records per second of the training, measured where gradients become part of the parameters. Pure."""

from __future__ import annotations

# The name of the metric.
RECORDS_PER_SECOND = "records_per_second"
# At most one value per interval. If a slow step makes it longer, the value is the mean over that time.
EVERY_SECONDS = 1.0


class Rate:
    """The rate from one update to another, so that nothing is counted twice or in part, however long the steps are.

    It begins with the first update that it receives: a restarted server measures only its own work.
    """

    def __init__(self, every: float = EVERY_SECONDS) -> None:
        self._every = every
        self._last: tuple[int, float] | None = None

    def take(self, records: int, now: float) -> float | None:
        """Return the rate since the last returned one if it is due, else None; ``records`` is the total so far."""
        if self._last is None:
            self._last = (records, now) if records else None
            return None
        before, at = self._last
        if records == before or now - at < self._every:
            return None
        self._last = records, now
        return (records - before) / (now - at)
