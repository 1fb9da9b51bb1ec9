"""The state of every task of a pass: todo, pending, done, discarded, or split into pieces. Pure.

When a task is searched for a bad record, its pieces replace it in this pass; they are numbered after the tasks of the
table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from runtime.checkpoint.data_position import Progress
from runtime.master.messages import Task, Trainer
from runtime.master.queue.trainer_tasks import TrainerTasks
from runtime.master.task_table import Span, TaskTable
from runtime.master.types import NO_TIMER, UNASKED, Bad, Entry, Key, Plan, Rival, Status, Timer, fresh


@dataclass
class Board:
    """The states of all tasks.

    ``changed`` are the tasks whose entries are to be committed; ``condemned`` is true if the quarantine is. ``pending``
    and ``by_trainer`` follow from the entries, which change only by ``write`` within a pass.
    """

    plan: Plan
    table: TaskTable
    pass_id: int = -1
    entries: list[Entry] = field(default_factory=list)
    parts: list[Span] = field(default_factory=list)
    pending: set[int] = field(default_factory=set)
    quarantine: tuple[Bad, ...] = ()
    changed: set[int] = field(default_factory=set)
    condemned: bool = False
    by_trainer: TrainerTasks = field(default_factory=TrainerTasks)

    def restore(self, pass_id: int, entries: Sequence[Entry], parts: Sequence[Span]) -> None:
        """Restore committed entries; those of an earlier pass count as todo."""
        self.pass_id = pass_id
        self.entries = [entry if entry.pass_id == pass_id else fresh(entry) for entry in entries]
        self.parts = list(parts)
        self.pending = set()
        for task_id, entry in enumerate(self.entries):
            if entry.status is Status.PENDING:
                self.pending.add(task_id)
                self.by_trainer.add(task_id, entry)
        self._retire_parts()

    def begin_pass(self, pass_id: int) -> None:
        """Make every task todo, without pieces."""
        self.pass_id = pass_id
        self.by_trainer.clear()
        self.entries = [fresh(entry) for entry in self.entries]
        self.parts = []
        self._retire_parts()

    def resume(self, progress: Progress) -> None:
        """Continue a pass of an earlier attempt: what the parameters contain of it is not done again."""
        table = range(len(self.table.tasks))
        for task_id in progress.done.intersection(table):
            self.write(task_id, self.entries[task_id]._replace(status=Status.DONE, pass_id=self.pass_id))
        for task_id in progress.begun.keys() & table:
            begun = progress.begun[task_id]
            self.write(task_id, self.entries[task_id]._replace(contained=begun, pass_id=self.pass_id))

    # --- Reading -----------------------------------------------------------------------------------------------------
    def is_part(self, task_id: int) -> bool:
        return task_id >= len(self.table.tasks)

    def span(self, task_id: int) -> Span:
        return self.parts[task_id - len(self.table.tasks)] if self.is_part(task_id) else self.table.span(task_id)

    def ranges(self, span: Span) -> tuple[tuple[int, int], ...]:
        """The records of a span that are not in quarantine."""
        bad = sorted(bad.record for bad in self.quarantine if bad.task_id == span.task_id)
        edges = [span.first - 1, *(record for record in bad if span.first <= record < span.end), span.end]
        return tuple((before + 1, after) for before, after in pairwise(edges) if before + 1 < after)

    def task(self, task_id: int) -> Task:
        """The task as it is sent to its trainer."""
        return self._task(task_id, self.entries[task_id].epoch)

    def _task(self, task_id: int, epoch: int) -> Task:
        span = self.span(task_id)
        return Task(
            self.pass_id,
            task_id,
            epoch,
            self.table.tasks[span.task_id],
            self.ranges(span) if self.is_part(task_id) or self.quarantine else None,
            self.entries[task_id].contained,
        )

    def foretold(self, task_id: int) -> Task:
        """A task of the table as it will probably be in the next pass."""
        ranges = self.ranges(self.table.span(task_id)) if self.quarantine else None
        return Task(self.pass_id + 1, task_id, 0, self.table.tasks[task_id], ranges)

    def count(self, status: Status) -> int:
        return sum(entry.status is status for entry in self.entries)

    def has(self, status: Status) -> bool:
        return any(entry.status is status for entry in self.entries)

    def names(self, key: Key, status: Status) -> bool:
        """Whether the key names the last dispatch of a task with this status."""
        if not 0 <= key.task_id < len(self.entries):
            return False
        entry = self.entries[key.task_id]
        return entry[:4] == (status, key.pass_id, key.epoch, key.trainer)

    def holds(self, key: Key) -> bool:
        """Whether the key names a dispatch of a task that is pending in this pass."""
        if key.pass_id != self.pass_id or key.task_id not in self.pending:
            return False
        entry = self.entries[key.task_id]
        rival = entry.rival
        return (entry.epoch, entry.trainer) == key[2:] or (rival is not None and rival[:2] == (key.trainer, key.epoch))

    def is_finished(self, key: Key) -> bool:
        """Whether this dispatch finished the task, in this pass or, without a later dispatch, in an earlier one."""
        before = key.pass_id < self.pass_id and (self.names(key, Status.TODO) or self.names(key, Status.SPLIT))
        return before or self.names(key, Status.DONE)

    def answered(self, trainer: Trainer, request: int) -> Task | None:
        """The task that answered this request before, if it is still pending."""
        for task_id in self.by_trainer.in_hand[trainer]:
            entry = self.entries[task_id]
            if entry.request == request and entry.trainer == trainer:
                return self.with_prefetched(self.task(task_id), trainer)
            if entry.rival and (entry.rival.trainer, entry.rival.request) == (trainer, request):
                return self._task(task_id, entry.rival.epoch)
        return None

    def prefetched(self, trainer: Trainer) -> tuple[Task, ...]:
        """The trainer's prefetched tasks that are not begun, in order, as they are sent to it."""
        return tuple(map(self.task, self.by_trainer.prefetched(trainer)))

    def with_prefetched(self, task: Task, trainer: Trainer) -> Task:
        """The task together with its trainer's prefetched tasks."""
        return task._replace(prefetched=self.prefetched(trainer)) if self.by_trainer.held[trainer] else task

    def held_by(self, trainer: Trainer) -> list[int]:
        return [task_id for task_id in sorted(self.pending) if trainer in self.entries[task_id].holders]

    # --- Changing ----------------------------------------------------------------------------------------------------
    def write(self, task_id: int, entry: Entry) -> None:
        self.by_trainer.remove(task_id, self.entries[task_id])
        self.entries[task_id] = entry
        self.changed.add(task_id)
        self.by_trainer.add(task_id, entry)

    def dispatch(self, task_id: int, trainer: Trainer, request: int, timer: Timer) -> Task:
        """Give a todo task to a trainer."""
        entry = self.entries[task_id]
        key = Status.PENDING, self.pass_id, entry.next_epoch, trainer, request
        blame = entry.failures, entry.blamed, entry.failures_ever
        self.write(task_id, Entry(*key, *blame, timer, contained=entry.contained))
        self.pending.add(task_id)
        return self.task(task_id)

    def prefetch(self, task_id: int, trainer: Trainer) -> None:
        """Give a todo task to a trainer that already has one, to be begun after those that it has."""
        held = self.by_trainer.held[trainer]
        self.dispatch(task_id, trainer, -1 - (held[-1][0] if held else 0), NO_TIMER)

    def begin(self, task_id: int, timer: Timer, request: int = UNASKED) -> Task:
        """Begin a prefetched task: the dispatch is the same, and its timer runs from now on."""
        self.write(task_id, self.entries[task_id]._replace(request=request, timer=timer))
        return self.task(task_id)

    def dispatch_again(self, task_id: int, trainer: Trainer, request: int, timer: Timer) -> Task:
        """Give a pending task to a second trainer."""
        entry = self.entries[task_id]
        epoch = entry.next_epoch
        self.write(task_id, entry._replace(latest=epoch, rival=Rival(trainer, epoch, request, timer)))
        return self._task(task_id, epoch)

    def bring_forward(self, task_id: int, holder: Trainer) -> Entry:
        """Make the dispatch to ``holder`` the first one of the entry."""
        entry = self.entries[task_id].brought_forward(holder)
        if entry is not self.entries[task_id]:
            self.write(task_id, entry)
        return entry

    def settle(self, task_id: int, entry: Entry) -> None:
        """Set the new state of a pending task."""
        self.pending.remove(task_id)
        self.write(task_id, entry._replace(timer=NO_TIMER, rival=None))

    def condemn(self, span: Span) -> None:
        """Leave one record out for the rest of the job."""
        self.quarantine = (*self.quarantine, Bad(span.task_id, span.first))
        self.condemned = True

    def add_part(self, span: Span) -> int:
        """Add a new task for a part of a task; return its number."""
        task_id = len(self.table.tasks) + len(self.parts)
        self.parts.append(span)
        if task_id == len(self.entries):
            self.entries.append(Entry())
        self.write(task_id, self.entries[task_id]._replace(status=Status.TODO, pass_id=self.pass_id))
        return task_id

    def _retire_parts(self) -> None:
        """Mark numbers of pieces that do not exist in this pass as split."""
        for task_id in range(len(self.table.tasks) + len(self.parts), len(self.entries)):
            self.entries[task_id] = fresh(self.entries[task_id])._replace(status=Status.SPLIT)
