"""Tasks that trainers are given ahead of their turn. Pure.

A trainer that has its next tasks already waits for nobody between two of them, and goes on while nothing can be
committed. Such a task is pending like any other, but its time does not run while its trainer has another in hand, and
nobody is blamed for it before it is begun.
"""

from __future__ import annotations

import math

from runtime.master.assignment import Dealing
from runtime.master.messages import Ahead, Task, Trainer
from runtime.master.task_states import Board
from runtime.master.types import Key, Timer

# What is given ahead keeps a trainer busy for about so long, which a master may need to answer on a busy machine...
AHEAD_SECONDS = 0.2
# ... but it is a task at least, and so many at most: short tasks cost more to list than to do.
MOST_AHEAD = 16
# So many tasks of the next pass are foretold: what is read of them waits in memory while a pass ends.
MOST_FORETOLD = 4


def how_many(usual: float | None) -> int:
    """How many tasks a trainer is given ahead where they usually take so many seconds; None: not known yet."""
    if usual is None:
        return 1
    return MOST_AHEAD if usual * MOST_AHEAD <= AHEAD_SECONDS else max(1, math.ceil(AHEAD_SECONDS / usual))


class Prefetch:
    """Hands out tasks ahead if ``board.plan`` says so, as long as enough are left for the others."""

    def __init__(self, board: Board, dealing: Dealing) -> None:
        self._board = board
        self._dealing = dealing

    def begin(self, trainer: Trainer, request: int, timer: Timer) -> Task | None:
        """The trainer asks for the next of the tasks that it was given ahead, if it was: the same dispatch, in hand."""
        held = self._board.prefetched_by(trainer)
        return self._board.begin(held[0], timer, request) if held else None

    def begun(self, key: Key, timer: Timer) -> bool:
        """The trainer has begun a task that it was given ahead; False where that is known, or the task another's."""
        if not self._board.holds(key) or not self._board.entries[key.task_id].prefetched:
            return False
        self._board.begin(key.task_id, timer)
        return True

    def add_to(self, task: Task, trainer: Trainer, usual: float | None) -> Task:
        """The task with the next ones beside it."""
        self._fill(trainer, usual)
        return self._board.with_prefetched(task, trainer)

    def ahead(self, trainer: Trainer, usual: float | None) -> Ahead:
        """What a trainer that has a task in hand has been given beside it, and is given now."""
        board = self._board
        if not board.in_hand[trainer] and not board.held[trainer]:
            return Ahead()  # what comes next may be of another pass, and it has to ask for that
        nothing_left = self._fill(trainer, usual)
        if not (nothing_left and board.plan.sync):
            return Ahead(board.prefetched(trainer))
        return Ahead(board.prefetched(trainer), board.pass_id, self._foretold(trainer))

    def _foretold(self, trainer: Trainer) -> tuple[Task, ...]:
        """What the trainer is dealt first in the next pass, if nobody joins, leaves, fails or falls silent."""
        board, live = self._board, self._dealing.live
        if board.pass_id + 1 >= board.plan.passes:
            return ()
        hand = range(live.index(trainer), len(board.table.tasks), len(live))
        return tuple(map(board.foretold, hand[:MOST_FORETOLD]))

    def _fill(self, trainer: Trainer, usual: float | None) -> bool:
        """Give tasks ahead; whether there is none for this trainer. In ``sync`` mode a hand is one's in any case."""
        plan, dealing, held = self._board.plan, self._dealing, self._board.held[trainer]
        if not plan.prefetch:
            return False
        most, others = how_many(usual), len(dealing.live) - 1
        while len(held) < most and (plan.sync or dealing.left > others * (len(held) + 1)):
            task_id = dealing.take(trainer)
            if task_id is None:
                return True
            self._board.prefetch(task_id, trainer)
        return not dealing.has_for(trainer)

    def stuck(self, trainer: Trainer, since: float) -> int | None:
        """A task that somebody else does not come to soon, who is busy with one before it since earlier than ``since``.

        The last one that there is: its trainer may be about to begin the first.
        """
        for other, held in sorted(self._board.held.items()):
            if other == trainer or not self._is_slow(other, since):
                continue
            for _turn, task_id in reversed(held):
                if not self._dealing.barred(task_id, trainer):
                    return task_id
        return None

    def _is_slow(self, trainer: Trainer, since: float) -> bool:
        hand = (self._board.entries[task_id] for task_id in self._board.in_hand[trainer])
        return any(entry.trainer == trainer and entry.timer.begun < since for entry in hand)

    def start_clocks(self, timer: Timer) -> None:
        """The time of the next task that was given ahead runs as soon as its trainer has nothing else in hand."""
        board = self._board
        for trainer, held in board.held.items():
            if held and not board.in_hand[trainer]:
                task_id = held[0][1]
                board.write(task_id, board.entries[task_id]._replace(timer=timer))
