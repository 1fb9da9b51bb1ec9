"""Pending tasks that are taken back from trainers: prefetched, overdue, and those of lost trainers. Pure."""

from __future__ import annotations

from runtime.master.messages import Trainer
from runtime.master.queue.assignment import Assigner
from runtime.master.queue.failure_attribution import Blame, Report
from runtime.master.queue.task_states import Board
from runtime.master.types import NO_TIMER
from runtime.messages import training as messages


class Preemption:
    """Takes pending tasks back.

    A task that its trainer has not begun returns to the head of the queue, and no trainer is blamed for it. Any other
    is blamed on its trainer: it returns to the head if the trainer is lost, to the tail if it is overdue.
    """

    def __init__(self, board: Board, assigner: Assigner, blame: Blame, report: Report) -> None:
        self._board = board
        self._assigner = assigner
        self._blame = blame
        self._report = report

    def take_prefetched(self, trainer: Trainer, but: int | None = None) -> None:
        """Return prefetched tasks to the head of the queue after an unusual report, without blame."""
        for task_id in reversed(self._board.by_trainer.prefetched(trainer)):
            if task_id != but:
                self._blame.put_back(task_id, self._board.entries[task_id], self._assigner.to_head)

    def take_from_the_lost(self) -> None:
        """Free the tasks of lost trainers, pending ones first, in order of their numbers.

        Afterwards only live trainers have tasks.
        """
        board, assigner = self._board, self._assigner
        assigner.free_tasks_of_the_gone()
        for task_id in sorted(board.pending, reverse=True):
            for holder in board.entries[task_id].holders:
                if holder in assigner.live:
                    continue
                entry = board.bring_forward(task_id, holder)
                if entry.prefetched:
                    self._blame.put_back(task_id, entry, assigner.to_head)
                else:
                    self._blame.blame(task_id, assigner.to_head)

    def take_overdue(self, now: float) -> None:
        """Take back the tasks whose deadline is over. Afterwards no deadline of a pending task is."""
        board = self._board
        for task_id in sorted(board.pending):
            for holder in board.entries[task_id].holders if task_id in board.pending else ():
                timer = board.bring_forward(task_id, holder).timer
                if timer != NO_TIMER and timer.deadline <= now:
                    self.take_prefetched(holder, but=task_id)
                    self._report("task", messages.TASK_OVERDUE(task=task_id, trainer=holder), True)
                    self._blame.blame(task_id, self._assigner.to_tail)

    def take_from_the_silent(self, now: float, patience: float) -> None:
        """Free the hands of trainers without contact for ``patience`` seconds, if another is active."""
        for trainer in self._assigner.free_tasks_of_the_silent(now, patience):
            self._report("task", messages.TRAINER_SILENT(trainer=trainer), True)
