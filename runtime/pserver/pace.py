"""Steps that are applied one by one: how much each counts, and how far its trainer may get ahead. Pure.

Together the steps of a round count as their mean by samples would: without that, many trainers would learn many times
as fast as one and diverge. Without a bound nobody ever waits, and a step counts less the more updates it has not seen.
With a bound of s (stale synchronous training, Ho et al. 2013) a trainer may pull while it is at most s steps ahead of
the slowest that takes part.
"""

from __future__ import annotations

from collections.abc import Mapping


class Pace:
    """``bound`` is how many steps ahead of the slowest a trainer may pull; None: any number."""

    def __init__(self, bound: int | None = None) -> None:
        self._bound = bound
        self._clocks: dict[int, int] = {}  # steps of each trainer that takes part
        self._samples: dict[int, int] = {}  # behind the last step of each
        self._before: dict[int, int] = {}  # steps of those that took part before this server began again

    def enter(self, index: int) -> None:
        """A trainer takes part from now on, beside the slowest: nobody has to wait for its past."""
        self._clocks[index] = self._before.pop(index, min(self._clocks.values(), default=0))

    def leave(self, index: int) -> None:
        """A trainer pushes nothing for now; nobody waits for it."""
        self._clocks.pop(index, None)

    def forget(self, index: int) -> None:
        """A trainer's process is gone."""
        self.leave(index)
        self._samples.pop(index, None)
        self._before.pop(index, None)

    def standing(self) -> tuple[Mapping[int, int], Mapping[int, int]]:
        """How many steps each trainer has made, and of how many samples its last one was."""
        return dict(self._clocks), dict(self._samples)

    def resume(self, clocks: Mapping[int, int], samples: Mapping[int, int]) -> None:
        """Go on from ``standing``, also for trainers that are still to say that they take part."""
        self._before, self._samples = dict(clocks), dict(samples)
        self._clocks = {index: self._before.pop(index, clock) for index, clock in self._clocks.items()}

    def step(self, index: int) -> None:
        """A trainer has pushed."""
        if index in self._clocks:
            self._clocks[index] += 1

    def may_pull(self, index: int) -> bool:
        if self._bound is None or index not in self._clocks:
            return True
        return self._clocks[index] <= min(self._clocks.values()) + self._bound

    def scale(self, index: int, samples: int, staleness: int) -> float:
        """What to multiply the learning rate of a step with. ``staleness``: updates since its values were pulled."""
        self._samples[index] = samples
        share = samples / sum(self._samples.values())
        return share if self._bound is not None else share * len(self._samples) / max(1, staleness)
