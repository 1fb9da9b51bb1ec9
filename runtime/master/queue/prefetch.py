"""Tasks that are given to trainers ahead of their turn. Pure.

A trainer that already has its next tasks does not wait between two of them, and continues while nothing can be
committed. Such a task is pending like any other. But its timer does not run while its trainer works on another task,
and no trainer is blamed for it before it is begun.
"""

from __future__ import annotations

import math

from runtime.master.messages import Ahead, Task, Trainer
from runtime.master.queue.assignment import Assigner
from runtime.master.queue.task_states import Board
from runtime.master.types import Key, Timer

# Prefetched tasks keep a trainer busy for about this long, which a master may need to answer on a busy machine.
AHEAD_SECONDS = 0.2
# At least one task and at most this many are prefetched: short tasks cost more to list than to do.
MOST_AHEAD = 16
# The number of foretold tasks of the next pass. Their records wait in memory while a pass ends.
MOST_FORETOLD = 4


def how_many(usual: float | None) -> int:
    """The number of tasks to prefetch if tasks usually take ``usual`` seconds; None if that is not known yet."""
    if usual is None:
        return 1
    return MOST_AHEAD if usual * MOST_AHEAD <= AHEAD_SECONDS else max(1, math.ceil(AHEAD_SECONDS / usual))


class Prefetch:
    """Hands out tasks ahead if ``board.plan`` allows it and enough tasks are left for the other trainers."""

    def __init__(self, board: Board, assigner: Assigner) -> None:
        self._board = board
        self._assigner = assigner

    def begin(self, trainer: Trainer, request: int, timer: Timer) -> Task | None:
        """Return the trainer's next prefetched task, if it has one: the same dispatch, now begun."""
        held = self._board.by_trainer.prefetched(trainer)
        return self._board.begin(held[0], timer, request) if held else None

    def begun(self, key: Key, timer: Timer) -> bool:
        """The trainer has begun a prefetched task. False if that is known already, or if another has the task."""
        if not self._board.holds(key) or not self._board.entries[key.task_id].prefetched:
            return False
        self._board.begin(key.task_id, timer)
        return True

    def add_to(self, task: Task, trainer: Trainer, usual: float | None) -> Task:
        """Return the task together with the next ones."""
        self._fill(trainer, usual)
        return self._board.with_prefetched(task, trainer)

    def ahead(self, trainer: Trainer, usual: float | None) -> Ahead:
        """Return the prefetched tasks of a trainer that has begun a task, after adding to them."""
        board = self._board
        if not board.by_trainer.in_hand[trainer] and not board.by_trainer.held[trainer]:
            return Ahead()  # the next task may be of another pass, and has to be requested
        nothing_left = self._fill(trainer, usual)
        if not (nothing_left and board.plan.sync):
            return Ahead(board.prefetched(trainer))
        return Ahead(board.prefetched(trainer), board.pass_id, self._foretold(trainer))

    def _foretold(self, trainer: Trainer) -> tuple[Task, ...]:
        """The tasks assigned first to the trainer in the next pass, if nobody joins, leaves, fails or falls silent."""
        board, live = self._board, self._assigner.live
        if board.pass_id + 1 >= board.plan.passes:
            return ()
        hand = range(live.index(trainer), len(board.table.tasks), len(live))
        return tuple(map(board.foretold, hand[:MOST_FORETOLD]))

    def _fill(self, trainer: Trainer, usual: float | None) -> bool:
        """Prefetch tasks; return whether none is left for this trainer.

        In ``sync`` mode a trainer keeps its hand in any case, so none of it is held back for the others.
        """
        plan, assigner, held = self._board.plan, self._assigner, self._board.by_trainer.held[trainer]
        if not plan.prefetch:
            return False
        most, others = how_many(usual), len(assigner.live) - 1
        while len(held) < most and (plan.sync or assigner.left > others * (len(held) + 1)):
            task_id = assigner.take(trainer)
            if task_id is None:
                return True
            self._board.prefetch(task_id, trainer)
        return not assigner.has_for(trainer)

    def stuck(self, trainer: Trainer, since: float) -> int | None:
        """Return a task that waits behind another trainer's task, which that trainer began before ``since``.

        It is the last task waiting there, because that trainer may be about to begin the first.
        """
        for other, held in sorted(self._board.by_trainer.held.items()):
            if other == trainer or not self._is_slow(other, since):
                continue
            for _turn, task_id in reversed(held):
                if not self._assigner.barred(task_id, trainer):
                    return task_id
        return None

    def _is_slow(self, trainer: Trainer, since: float) -> bool:
        hand = (self._board.entries[task_id] for task_id in self._board.by_trainer.in_hand[trainer])
        return any(entry.trainer == trainer and entry.timer.begun < since for entry in hand)

    def start_clocks(self, timer: Timer) -> None:
        """Start the timer of the next prefetched task of each trainer that has nothing else to do."""
        board = self._board
        for trainer, held in board.by_trainer.held.items():
            if held and not board.by_trainer.in_hand[trainer]:
                task_id = held[0][1]
                board.write(task_id, board.entries[task_id]._replace(timer=timer))
