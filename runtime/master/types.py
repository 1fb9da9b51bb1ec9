"""The state of a job's tasks: values that the parts of the queue share and that the ledger stores. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from runtime.checkpoint.data_position import Progress
from runtime.master.messages import Trainer
from runtime.master.task_table import Span

FAILURE_CAP = 3
START_GRACE_SECONDS = 20.0


class Status(IntEnum):
    TODO = 0
    PENDING = 1
    DONE = 2
    DISCARDED = 3
    SPLIT = 4  # its pieces replace it in this pass; or the number of a piece that does not exist now


class Timer(NamedTuple):
    """When a pending task was handed out and when it is overdue."""

    begun: float
    deadline: float


NO_TIMER = Timer(0.0, 0.0)
# The request number of a prefetched task that its trainer began without a request.
UNASKED = 0


class Rival(NamedTuple):
    """A second dispatch of a pending task, near the end of a pass; the first finish counts."""

    trainer: Trainer
    epoch: int
    request: int
    timer: Timer


class Entry(NamedTuple):
    """The few bytes of state of one task.

    ``trainer`` has it (pending) or finished it (done); with ``pass_id`` and ``epoch`` that is the dispatch's key.
    ``request`` is the number of the trainer's request that it answered. For a prefetched task that is not begun, it is
    negative, -1 for the first and so on; its timer does not run before the tasks before it are done.

    ``failures`` and ``blamed`` (indices of trainers) count within the pass, ``failures_ever`` over all passes.
    ``timer`` runs while the task is pending.

    ``latest`` is the highest epoch that a rival ever had, so that no epoch is used twice. The parameters at the start
    of the attempt contain the first ``contained`` batches of the task.
    """

    status: Status = Status.TODO
    pass_id: int = 0
    epoch: int = 0
    trainer: Trainer | None = None
    request: int = 0
    failures: int = 0
    blamed: tuple[int, ...] = ()
    failures_ever: int = 0
    timer: Timer = NO_TIMER
    latest: int = 0
    rival: Rival | None = None
    contained: int = 0

    @property
    def prefetched(self) -> bool:
        """Whether the task is pending, handed out ahead and not begun."""
        return self.request < 0 and self.status is Status.PENDING

    @property
    def next_epoch(self) -> int:
        return max(self.epoch, self.latest) + 1

    @property
    def holders(self) -> tuple[Trainer, ...]:
        """The trainers that work on it: one or two."""
        return tuple(one for one in (self.trainer, self.rival and self.rival.trainer) if one)

    def brought_forward(self, holder: Trainer | None) -> Entry:
        """The same entry with the dispatch to ``holder`` as the first."""
        rival = self.rival
        if rival is None or self.trainer is None or rival.trainer != holder:
            return self
        other = Rival(self.trainer, self.epoch, self.request, self.timer)
        return self._replace(
            trainer=rival.trainer, epoch=rival.epoch, request=rival.request, timer=rival.timer, rival=other
        )

    def withdrawn(self) -> Entry:
        """The entry without the first dispatch: the rival continues alone."""
        return self.brought_forward(self.rival and self.rival.trainer)._replace(rival=None)


class Key(NamedTuple):
    """Names one dispatch."""

    pass_id: int
    task_id: int
    epoch: int
    trainer: Trainer


class Verdict(IntEnum):
    """The answer to a report."""

    OK = 0
    STALE = 1


class Happening(NamedTuple):
    """An event to report.

    ``notable`` ones belong on the job's timeline. All are logged, but of the ``frequent`` ones only as many as a reader
    can follow.
    """

    kind: str
    text: str
    notable: bool = False
    frequent: bool = False


class Saver(NamedTuple):
    """The trainer that may save the model, and until when."""

    trainer: Trainer
    deadline: float


class Bad(NamedTuple):
    """A record that is left out for the rest of the job, by its number within its task."""

    task_id: int
    record: int


class Assignment(NamedTuple):
    """The live trainers and the assignment of tasks: ``hands`` of trainers, in order, and ``free`` for any trainer.

    ``parts`` are the pieces that replace tasks in this pass; they are numbered after the tasks of the table. When it is
    read back later, only tasks that are todo count: taking a task from a hand does not change the rest.
    """

    live: tuple[Trainer, ...] = ()
    free: Sequence[int] = ()
    hands: tuple[tuple[Trainer, Sequence[int]], ...] = ()
    parts: tuple[Span, ...] = ()


class Head(NamedTuple):
    """The committed state of the queue as a whole. ``at`` is the queue's time; ``usual`` is how long tasks take."""

    at: float
    pass_id: int
    failed: str = ""
    saver: Saver | None = None
    usual: float | None = None


class Saved(NamedTuple):
    """The committed state of a queue, as it is read back. Entries of an earlier pass are as that pass left them."""

    head: Head
    entries: Sequence[Entry]
    assignment: Assignment
    quarantine: tuple[Bad, ...] = ()


class Changes(NamedTuple):
    """What has to be committed: the head, the tasks with these numbers, assignment and quarantine unless None."""

    head: Head
    tasks: tuple[int, ...]
    assignment: Assignment | None
    quarantine: tuple[Bad, ...] | None
    happenings: tuple[Happening, ...]


@dataclass(frozen=True)
class Plan:
    """What is fixed for the whole job. ``resume`` is the data position of the parameters at the start of the attempt.

    With ``prefetch``, the next tasks are sent with each task, so that no trainer waits for the master between two
    tasks.
    """

    passes: int
    sync: bool = True
    trainers: int = 1
    min_trainers: int = 1
    failure_cap: int = FAILURE_CAP
    start_grace: float = START_GRACE_SECONDS
    quarantine: bool = False
    resume: Progress | None = None
    prefetch: bool = False


def fresh(entry: Entry) -> Entry:
    """A task's state at the beginning of a pass: counters at zero, the key of its last dispatch kept. Idempotent."""
    finished = entry.trainer if entry.status in (Status.DONE, Status.TODO) else None
    return entry._replace(status=Status.TODO, trainer=finished, failures=0, blamed=(), rival=None, contained=0)
