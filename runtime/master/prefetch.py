"""Tasks that trainers are given ahead, with the one that they asked for. Pure.

A trainer that has its next task already goes on while nothing can be committed. Such a task is pending like any other,
but its time does not run while its trainer has another in hand, and nobody is blamed for it before it is begun.
"""

from __future__ import annotations

from runtime.master.board import Board
from runtime.master.dealing import Dealing
from runtime.master.messages import Task, Trainer
from runtime.master.state import NO_TIMER, Timer


class Prefetch:
    """Hands out tasks ahead if ``board.plan`` says so, as long as enough are left for the others."""

    def __init__(self, board: Board, dealing: Dealing) -> None:
        self._board = board
        self._dealing = dealing

    def begin(self, trainer: Trainer, request: int, timer: Timer) -> Task | None:
        """The trainer asks for the task that it was given ahead, if it was: the same dispatch, now in hand."""
        task_id = self._board.prefetched_by(trainer)
        return None if task_id is None else self._board.begin(task_id, request, timer)

    def add_to(self, task: Task, trainer: Trainer) -> Task:
        """The task with the next one beside it. In ``sync`` mode a hand is one trainer's in any case."""
        plan, dealing = self._board.plan, self._dealing
        if plan.prefetch and (plan.sync or dealing.left >= len(dealing.live)):
            task_id = dealing.take(trainer)
            if task_id is not None:
                self._board.prefetch(task_id, trainer)
        return self._board.with_prefetched(task, trainer)

    def stuck(self, trainer: Trainer, since: float) -> int | None:
        """A task that somebody else does not come to, who is busy with one before it since earlier than ``since``."""
        pending = {i: self._board.entries[i] for i in sorted(self._board.pending)}
        slow = {one.trainer for one in pending.values() if one.timer != NO_TIMER and one.timer.begun < since} - {
            trainer
        }
        stuck = (i for i, one in pending.items() if one.prefetched and one.trainer in slow)
        return next((i for i in stuck if not self._dealing.barred(i, trainer)), None)

    def start_clocks(self, timer: Timer) -> None:
        """The time of a task that was given ahead runs as soon as its trainer has nothing else in hand."""
        board = self._board
        pending = [(i, board.entries[i]) for i in board.pending] if board.plan.prefetch else []
        busy = {holder for _, entry in pending if entry.timer != NO_TIMER for holder in entry.holders}
        for task_id, entry in pending:
            if entry.timer == NO_TIMER and entry.trainer not in busy:
                board.write(task_id, entry._replace(timer=timer))
