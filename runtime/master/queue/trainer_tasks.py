"""The pending tasks of each trainer, in the order in which it does them. Pure."""

from __future__ import annotations

from bisect import insort
from collections import defaultdict

from runtime.master.messages import Trainer
from runtime.master.types import NO_TIMER, Entry, Status


class TrainerTasks:
    """An index of the pending entries by their trainers. It follows from the entries.

    ``in_hand`` has the tasks of each trainer whose timer runs. ``held`` has its prefetched tasks that are not begun, as
    (-request, task) in the order in which they will be begun.
    """

    def __init__(self) -> None:
        self.in_hand: defaultdict[Trainer, set[int]] = defaultdict(set)
        self.held: defaultdict[Trainer, list[tuple[int, int]]] = defaultdict(list)

    def add(self, task_id: int, entry: Entry) -> None:
        """Add the task, if it is pending."""
        if entry.status is not Status.PENDING:
            return
        if entry.prefetched and entry.trainer:
            insort(self.held[entry.trainer], (-entry.request, task_id))
        if entry.timer != NO_TIMER:
            for holder in entry.holders:
                self.in_hand[holder].add(task_id)

    def remove(self, task_id: int, entry: Entry) -> None:
        """Remove the task, which was added with this entry."""
        if entry.status is not Status.PENDING:
            return
        if entry.prefetched and entry.trainer:
            self.held[entry.trainer].remove((-entry.request, task_id))
        if entry.timer != NO_TIMER:
            for holder in entry.holders:
                self.in_hand[holder].discard(task_id)

    def clear(self) -> None:
        self.in_hand.clear()
        self.held.clear()

    def prefetched(self, trainer: Trainer) -> list[int]:
        """Return the numbers of the trainer's prefetched tasks that are not begun, in order."""
        return [task_id for _turn, task_id in self.held[trainer]]
