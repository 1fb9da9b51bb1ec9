"""How long tasks take, and second dispatches of slow tasks. Pure.

Near the end of a pass, an idle trainer also does the task that is under way for longest.
"""

from __future__ import annotations

from typing import NamedTuple

from runtime.master.messages import Trainer
from runtime.master.queue.assignment import Assigner
from runtime.master.queue.failure_attribution import Report
from runtime.master.queue.task_states import Board
from runtime.master.types import Entry
from runtime.messages import training as messages

FLOOR_SECONDS = 60.0
_KEPT = 64
_FACTOR = 3.0
# A task is slow after this many times the usual duration, and not before this many seconds.
_SLOW_FACTOR = 1.5
_SLOW_SECONDS = 5.0


class Durations(NamedTuple):
    """The seconds that the last finished tasks took, oldest first, and their 95th percentile; None before any."""

    last: tuple[float, ...] = ()
    usual: float | None = None

    def add(self, seconds: float) -> Durations:
        last = (*self.last[-(_KEPT - 1) :], seconds)
        return Durations(last, sorted(last)[int(0.95 * (len(last) - 1))])

    @property
    def timeout(self) -> float:
        """The timeout of a task: three times the usual duration, but at least a minute."""
        return max(FLOOR_SECONDS, _FACTOR * (self.usual or 0.0))


class SlowTasks:
    """Selects tasks for a second dispatch in an open pass.

    A selected task has one dispatch, on a trainer of another index, and no failure on the idle trainer. None is
    selected in ``sync`` mode, or while a task is todo. ``usual`` is how many seconds tasks take, None if unknown.
    """

    def __init__(self, board: Board, assigner: Assigner, report: Report) -> None:
        self._board = board
        self._assigner = assigner
        self._report = report

    def since(self, trainer: Trainer, usual: float | None, now: float) -> float | None:
        """Tasks begun before this time are slow; None if this trainer does not take over tasks."""
        assigner = self._assigner
        if self._board.plan.sync or usual is None or trainer not in assigner.live or not assigner.empty:
            return None
        return now - max(_SLOW_SECONDS, _SLOW_FACTOR * usual)

    def select(self, trainer: Trainer, usual: float | None, now: float) -> int | None:
        """Return the task that this idle trainer should also try, if there is one, and report it."""
        since = self.since(trainer, usual, now)
        if usual is None or since is None:
            return None
        board = self._board
        slow = [task_id for task_id in board.pending if _may_try_too(trainer, board.entries[task_id], since)]
        task_id = min(slow, key=lambda task_id: (board.entries[task_id].timer.begun, task_id), default=None)
        if task_id is not None:
            entry = board.entries[task_id]
            self._report(
                "task",
                messages.TASK_SLOW(
                    task=task_id,
                    trainer=entry.trainer,
                    seconds=f"{now - entry.timer.begun:.0f}",
                    usual=f"{usual:.0f}",
                    other=trainer,
                ),
                True,
            )
        return task_id


def _may_try_too(trainer: Trainer, entry: Entry, since: float) -> bool:
    indices = {holder.index for holder in entry.holders}.union(entry.blamed)
    is_slow = entry.timer.begun < since and not entry.prefetched
    return entry.rival is None and is_slow and trainer.index not in indices
