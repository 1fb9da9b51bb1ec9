"""The requests and the data that the version of a shard contains. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from runtime.checkpoint.data_position import Position, Progress


class ContainedRequests:
    """The number of each trainer's last request that counts, so that each request is applied once.

    Numbers belong to an incarnation. Those of a checkpoint wait in ``_restored`` until their trainer is live. A
    trainer's number is forgotten only with its incarnation. ``progress`` is the position in the data.
    """

    def __init__(self) -> None:
        self.progress = Progress()
        self._applied: dict[int, int] = {}  # by index, of live trainers
        self._restored: Mapping[int, int] = {}  # by incarnation, from a checkpoint or a trainer

    def has(self, index: int, seq: int) -> bool:
        """Whether this request of trainer ``index`` counts already."""
        return seq <= self._applied.get(index, 0)

    def is_last(self, index: int, seq: int) -> bool:
        """Whether this is the last request of trainer ``index`` that counts."""
        return seq == self._applied.get(index)

    def record(self, index: int, seq: int, at: Position | None = None) -> None:
        """Request ``seq`` of trainer ``index`` counts, and with it the data up to ``at``."""
        self._applied[index] = seq
        self.note(at)

    def note(self, at: Position | None) -> None:
        """Record that the version contains the data up to this position."""
        if at is not None:
            self.progress.note(at)

    def forget(self, index: int) -> None:
        """Remove a lost trainer."""
        self._applied.pop(index, None)

    def recognise(self, live: Mapping[int, int]) -> None:
        """Take the restored numbers of trainers that are live (index -> incarnation) and have none yet."""
        for index, incarnation in live.items():
            if incarnation in self._restored:
                self._applied.setdefault(index, self._restored[incarnation])

    def place(self, index: int, incarnation: int, seq: int) -> None:
        """Take the last answered request that a trainer reports; a higher number stays."""
        contained = self._restored.get(incarnation, 0)
        self._applied[index] = max(self._applied.get(index, 0), contained, seq)

    def restore(self, sequences: Mapping[int, int], progress: Progress) -> None:
        """Take what a checkpoint contains; ``sequences`` by incarnation."""
        self._restored, self.progress = sequences, progress

    def merge(self, sequences: Mapping[int, int], live: Mapping[int, int]) -> None:
        """Add what the values of a trainer contain to what a checkpoint contains."""
        self._restored = {**self._restored, **sequences}
        for index, incarnation in live.items():
            self._applied[index] = max(self._applied.get(index, 0), self._restored.get(incarnation, 0))

    def sequences(self, live: Mapping[int, int]) -> dict[int, int]:
        """The last request of each live trainer, by incarnation."""
        return {live[index]: seq for index, seq in self._applied.items() if index in live}
