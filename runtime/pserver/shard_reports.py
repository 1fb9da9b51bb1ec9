"""Reports of a shard: whether it has values, its version in the log, and the training's records per second."""

from __future__ import annotations

import logging
from collections.abc import Callable

from runtime.pserver.recovery import Recovered
from runtime.pserver.shard import Shard

# The name of the metric.
RECORDS_PER_SECOND = "records_per_second"
# At most one value per interval. If a slow step makes it longer, the value is the mean over that time.
EVERY_SECONDS = 1.0
LOG_SECONDS = 5.0

log = logging.getLogger("pserver")


class Rate:
    """The rate from one update to another, so that nothing is counted twice or in part, however long the steps are.

    It is measured where gradients become part of the parameters. It begins with the first update that it receives: a
    restarted server measures only its own work.
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


class ShardReports:
    """Reports what has changed in a shard since the last event: values and their loss once, the others repeatedly.

    ``on_rate``, ``on_values`` and ``on_lost``: see ``ShardServer``. The caller holds the shard's lock.
    """

    def __init__(
        self,
        shard: Shard,
        now: float,
        on_rate: Callable[[int, float], object],
        on_values: Callable[[Recovered | None], object],
        on_lost: Callable[[str], object],
    ) -> None:
        self._shard = shard
        self._rate = Rate()
        self._on_rate = on_rate
        self._on_values = on_values
        self._on_lost = on_lost
        self._reported = shard.election.ready
        self._loss_reported = False
        self._logged = (0, now)

    def report_values(self) -> None:
        """Report that there are values, or that they are lost."""
        election = self._shard.election
        if election.lost and not self._loss_reported:
            self._reported = self._loss_reported = True
            self._on_lost(election.lost)
        elif election.ready and not self._reported:
            self._reported = True
            self._on_values(election.recovered)

    def log_version(self, now: float) -> None:
        """Log the version and its rate at most every ``LOG_SECONDS``."""
        shard, (version, at) = self._shard, self._logged
        if shard.version > version and now - at >= LOG_SECONDS:
            rate = (shard.version - version) / (now - at)
            late = f", {shard.late} steps came too late and were dropped" if shard.late else ""
            log.info("version %d, %.0f a second, %d trainers%s", shard.version, rate, len(shard.barrier.live), late)
            self._logged = (shard.version, now)

    def report_rate(self, now: float) -> None:
        """Report the records per second when they are due."""
        if (rate := self._rate.take(self._shard.records, now)) is not None:
            self._on_rate(self._shard.version, rate)
