"""What happens to a failed task: it returns to the queue, is discarded, or is searched for a bad record. Pure.

A task whose data cannot be read is not searched, because no record is at fault. When a second trainer has tried (or the
only one twice), the task is left out of the pass or the job fails, as the script requests.

The search cuts a task into its chunks and these into pieces, down to a single record. That record is left out for the
rest of the job when it fails on two trainers (or twice on the only one). A failure report with a place saves most of
the search.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from runtime.master.messages import Unread
from runtime.master.queue.assignment import Assigner, Place
from runtime.master.queue.task_states import Board
from runtime.master.task_table import Span
from runtime.master.types import Entry, Status
from runtime.messages import training as messages
from runtime.messages.composition import enumerated

# The number of pieces into which a part of a chunk is cut. Each step of the search costs a trainer, so few steps with
# many pieces are better.
_PIECES = 8
# A task with this many failures in a pass is not searched further: all of it is bad, not one record.
_SEARCH_LIMIT = 64

# Called with the kind of a happening, its message, and whether it is notable.
Report = Callable[[str, str, bool], None]


class Blame:
    """Decides about one failure at a time."""

    def __init__(self, board: Board, assigner: Assigner, report: Report) -> None:
        self._board = board
        self._assigner = assigner
        self._report = report

    def blame(self, task_id: int, place: Place, where: tuple[int, int] | None = None) -> None:
        """Handle a failure of the task on its current trainer.

        ``where`` (records first, end) is the suspected place. ``place`` puts the task back if nothing else needs to be
        done.
        """
        entry = _failed(self._board.entries[task_id])
        if entry.rival:  # the outcome of the other dispatch decides
            self._board.write(task_id, entry.withdrawn())
            return
        span = self._board.span(task_id)
        suspect = _suspect(span, where)
        part = self._board.is_part(task_id)
        if self._may_search(span) and (suspect or part or self._guilty(entry, self._board.plan.failure_cap)):
            self._split(task_id, entry, suspect)
        elif self._guilty(entry, self._last_cap(task_id)):
            self._discard(task_id, entry)
        else:
            self.put_back(task_id, entry, place)

    def cannot_read(self, task_id: int, why: str, unread: Unread) -> str:
        """Handle unreadable data of a task. Return why the job fails, or an empty string if it continues."""
        entry = _failed(self._board.entries[task_id])
        if entry.rival or not self._guilty(entry, 1):
            self.put_back(task_id, entry, self._assigner.to_head)
            return ""
        table, span = self._board.table, self._board.span(task_id)
        named = table.describe([span])
        self._board.settle(task_id, entry._replace(status=Status.DISCARDED))
        if unread is Unread.LEAVE_OUT:
            text = messages.TASK_UNREADABLE(task=task_id, records=named, dataset=table.dataset)
            self._report("task", text, True)
            return ""
        return messages.DATASET_UNREADABLE(records=named, dataset=table.dataset, why=why)

    def put_back(self, task_id: int, entry: Entry, place: Place) -> None:
        """Make a pending task todo again, unless another trainer still works on it."""
        if entry.rival:
            self._board.write(task_id, entry.withdrawn())
            return
        self._board.settle(task_id, entry._replace(status=Status.TODO, trainer=None))
        place(task_id, entry.trainer)

    def _guilty(self, entry: Entry, cap: int) -> bool:
        """Whether the task is at fault and not a trainer."""
        return entry.failures > cap and (len(entry.blamed) > 1 or len(self._assigner.live) < 2)

    def _last_cap(self, task_id: int) -> int:
        """The number of failures allowed before a task is left out: fewer for a piece of a searched task."""
        cap = self._board.plan.failure_cap
        return min(1, cap) if self._board.is_part(task_id) else cap

    def _discard(self, task_id: int, entry: Entry) -> None:
        board = self._board
        span = board.span(task_id)
        board.settle(task_id, entry._replace(status=Status.DISCARDED))
        named = board.table.describe([span])
        if board.plan.quarantine and span.records == 1 and self._works():
            board.condemn(span)
            number, file = board.table.first_record(span)
            text = messages.RECORD_QUARANTINED(
                number=number,
                file=file,
                dataset=board.table.dataset,
                task=span.task_id,
                chunk=board.table.chunk_of(span),
                trainers=enumerated([f"trainer-{index}" for index in entry.blamed]),
            )
            self._report("quarantine", text, True)
            return
        self._report("task", messages.TASK_DISCARDED(task=task_id, count=entry.failures, records=named), True)

    # --- The search for a bad record ---------------------------------------------------------------------------------
    def _may_search(self, span: Span) -> bool:
        """Whether a span may be searched. Not if the script has not finished any task yet."""
        return (
            self._board.plan.quarantine
            and span.records > 1
            and self._board.entries[span.task_id].failures < _SEARCH_LIMIT
            and self._works()
        )

    def _works(self) -> bool:
        """Whether the job has finished any task yet."""
        return self._board.pass_id > 0 or self._board.has(Status.DONE)

    def _split(self, task_id: int, entry: Entry, suspect: Span | None) -> None:
        """Replace a task by pieces of it, at the tail of the queue."""
        board = self._board
        span = board.span(task_id)
        board.settle(task_id, entry._replace(status=Status.SPLIT, trainer=None))
        if board.is_part(task_id):
            root = board.entries[span.task_id]
            board.write(span.task_id, root._replace(failures=root.failures + 1))
        for piece in self._pieces(span, suspect):
            if board.ranges(piece):
                self._assigner.to_tail(board.add_part(piece), None)
        self._report("task", messages.TASK_SEARCHED(task=task_id, records=board.table.describe([span])), True)

    def _pieces(self, span: Span, suspect: Span | None) -> list[Span]:
        if suspect is None:
            return self._board.table.pieces(span, _PIECES)
        cuts = (span.first, suspect.first, suspect.end, span.end)
        return [Span(span.task_id, *cut) for cut in pairwise(cuts)]


def _failed(entry: Entry) -> Entry:
    """The entry with one more failure, on the trainer that has the task."""
    culprits = {entry.trainer.index} if entry.trainer else set()
    return entry._replace(
        failures=entry.failures + 1,
        blamed=tuple(sorted(culprits.union(entry.blamed))),
        failures_ever=entry.failures_ever + 1,
    )


def _suspect(span: Span, where: tuple[int, int] | None) -> Span | None:
    """The place that a trainer reported, if it is a part of the task."""
    if where is None:
        return None
    suspect = Span(span.task_id, max(span.first, where[0]), min(span.end, where[1]))
    return suspect if 0 < suspect.records < span.records else None
