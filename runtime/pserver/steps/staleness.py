"""Steps that are applied one by one: their weights, and how far a trainer may get ahead. Pure.

Together the steps of a round count as their mean by samples would. Without that, many trainers would learn many times
as fast as one and diverge. Without a bound no trainer ever waits, and a step counts less the more updates it has not
seen. With a bound of s (stale synchronous training, Ho et al. 2013) a trainer may pull while it is at most s steps
ahead of the slowest active one.

With a bound the steps of a round add up to one update at the full learning rate, so a learning rate schedule advances
by rounds. A schedule made for synchronous training then ends after the same number of passes.
"""

from __future__ import annotations

from collections.abc import Mapping


class Pace:
    """``bound`` is how many steps ahead of the slowest a trainer may pull; None: any number."""

    def __init__(self, bound: int | None = None) -> None:
        self._bound = bound
        self._rounds = 0.0  # the sum of the shares of all steps
        self._clocks: dict[int, int] = {}  # steps of each active trainer
        self._samples: dict[int, int] = {}  # in the last step of each trainer
        self._before: dict[int, int] = {}  # steps of those that were active before this server restarted

    def enter(self, index: int) -> None:
        """A trainer becomes active, level with the slowest: nobody has to wait for its past."""
        self._clocks[index] = self._before.pop(index, min(self._clocks.values(), default=0))

    def leave(self, index: int) -> None:
        """A trainer pushes nothing for now; nobody waits for it."""
        self._clocks.pop(index, None)

    def forget(self, index: int) -> None:
        """Remove a lost trainer."""
        self.leave(index)
        self._samples.pop(index, None)
        self._before.pop(index, None)

    def rounds(self, version: int) -> float:
        """The position of a learning rate schedule after ``version`` updates."""
        return version if self._bound is None else self._rounds

    def resume_rounds(self, rounds: float) -> None:
        """Continue the schedule from a checkpoint's ``rounds``."""
        self._rounds = rounds

    def standing(self) -> tuple[Mapping[int, int], Mapping[int, int], float]:
        """The steps of each trainer, the samples of its last one, and the rounds of all."""
        return dict(self._clocks), dict(self._samples), self._rounds

    def resume(self, clocks: Mapping[int, int], samples: Mapping[int, int], rounds: float) -> None:
        """Continue from ``standing``, also for trainers that have not reported yet that they are active."""
        self._before, self._samples, self._rounds = dict(clocks), dict(samples), rounds
        self._clocks = {index: self._before.pop(index, clock) for index, clock in self._clocks.items()}

    def step(self, index: int) -> None:
        """Count a push of a trainer."""
        if index in self._clocks:
            self._clocks[index] += 1

    def may_pull(self, index: int) -> bool:
        if self._bound is None or index not in self._clocks:
            return True
        return self._clocks[index] <= min(self._clocks.values()) + self._bound

    def scale(self, index: int, samples: int, staleness: int) -> float:
        """Return the factor of the learning rate of a step, and count the step towards ``rounds``.

        ``staleness`` is the number of updates since its values were pulled.
        """
        self._samples[index] = samples
        share = samples / sum(self._samples.values())
        self._rounds += share
        return share if self._bound is not None else share * len(self._samples) / max(1, staleness)
