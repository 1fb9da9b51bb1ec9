"""Passes of a job: when the first one begins, and how each ends and the next one begins. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from runtime.master.queue.assignment import Assigner
from runtime.master.queue.task_states import Board
from runtime.master.task_table import Span
from runtime.master.types import Happening, Status
from runtime.messages import Message, Template, paragraph
from runtime.messages import training as messages
from runtime.messages.composition import listed

_TASKS = (messages.TASK_COUNT_ONE, messages.TASK_COUNT)
_RECORDS = (messages.RECORD_COUNT_ONE, messages.RECORD_COUNT)
_TRAINERS = (messages.TRAINER_COUNT_ONE, messages.TRAINER_COUNT)


class Passes:
    """Begins and ends the passes of a board.

    Passes follow each other without a gap: the end of one begins the next, up to ``plan.passes``. The first one
    repeats the assignment of an earlier attempt that the job resumes. Until ``start_by`` it waits for all trainers of
    the plan, then for the minimum. ``begun`` is when the current pass began.
    """

    def __init__(
        self, board: Board, assigner: Assigner, record: Callable[[Happening], object], start_by: float
    ) -> None:
        self._board = board
        self._assigner = assigner
        self._record = record
        self.start_by = start_by
        self.begun = 0.0

    @property
    def open(self) -> bool:
        """Whether a pass has begun and not ended."""
        return 0 <= self._board.pass_id < self._board.plan.passes

    def may_start(self, now: float) -> bool:
        """Whether enough trainers are alive for the first pass."""
        plan = self._board.plan
        needed = plan.trainers if now < self.start_by else plan.min_trainers
        return len(self._assigner.live) >= max(1, needed)

    def start(self, now: float, patience: float) -> None:
        """Begin the first pass, or the one of an earlier attempt with the same assignment.

        ``patience`` is after how many seconds a trainer without contact counts as silent.
        """
        board, assigner = self._board, self._assigner
        resume = board.plan.resume
        self._begin(resume.pass_id if resume else 0, now)
        if resume and self.open:
            if board.plan.sync:
                assigner.assign_free(now, patience)
            board.resume(resume)
            assigner.strike_done()
            done, number = _counted(board.count(Status.DONE), _TASKS), board.pass_id + 1
            self._record(Happening("job", messages.DATA_RESUMES(number=number, tasks=done), notable=True))

    def end(self, now: float) -> str:
        """End the pass and begin the next one. Return why the job fails instead, or an empty string."""
        board = self._board
        discarded = [i for i, entry in enumerate(board.entries) if entry.status is Status.DISCARDED]
        self._record(self._summary(discarded, now - self.begun))
        if not board.has(Status.DONE):
            named = board.table.describe(board.span(i) for i in discarded)
            return paragraph(
                messages.NO_TASK_DONE(number=board.pass_id + 1, records=named, dataset=board.table.dataset),
                messages.SEE_TRAINER_LOGS(),
            )
        self._begin(board.pass_id + 1, now)
        return ""

    def _begin(self, pass_id: int, now: float) -> None:
        self.begun = now
        board = self._board
        if pass_id >= board.plan.passes:
            board.pass_id = pass_id
            self._record(Happening("job", self._all_done(), notable=True))
            return
        board.begin_pass(pass_id)
        self._assigner.begin_pass(now)

    def _all_done(self) -> Message:
        board = self._board
        if not board.quarantine:
            return messages.ALL_PASSES_DONE(count=board.plan.passes)
        spans = (Span(bad.task_id, bad.record, bad.record + 1) for bad in board.quarantine)
        return messages.ALL_PASSES_DONE_EXCEPT(
            count=board.plan.passes, records=board.table.describe(spans), dataset=board.table.dataset
        )

    def _summary(self, discarded: Sequence[int], seconds: float) -> Happening:
        board = self._board
        records = board.table.records - sum(board.span(i).records for i in discarded)
        details = [_counted(records, _RECORDS)]
        if seconds > 0:
            details.append(messages.RECORDS_PER_SECOND(rate=f"{records / seconds:,.0f}"))
        details.append(_counted(len(self._assigner.live), _TRAINERS))
        if discarded:
            details.append(messages.TASKS_SKIPPED(tasks=_counted(len(discarded), _TASKS)))
        text = messages.PASS_DONE_DETAILS(
            number=board.pass_id + 1, passes=board.plan.passes, seconds=f"{seconds:.1f}", details=listed(details)
        )
        between = 0 < board.pass_id < board.plan.passes - 1
        return Happening("pass", text, frequent=between and not discarded)


def _counted(count: int, noun: tuple[Template, Template]) -> Message:
    one, several = noun
    return one(count=1) if count == 1 else several(count=f"{count:,}")
