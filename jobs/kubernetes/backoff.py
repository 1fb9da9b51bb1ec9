"""How long to wait before something is tried again. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Backoff:
    """Seconds: ``first``, then twice as many each time, at most ``longest``."""

    first: float = 0.5
    longest: float = 30.0

    def pause(self, failures: int, chance: float = 1.0) -> float:
        """After so many failures in a row. ``chance``, from 0 to 1, spreads callers over the second half of it."""
        if failures <= 0:
            return 0.0
        full = min(self.longest, self.first * 2.0 ** min(failures - 1, 32))
        return full / 2 + full / 2 * chance
