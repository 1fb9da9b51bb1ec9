"""The task queue of a job. Pure: every method takes the time and returns; nothing here waits, reads or writes.

A task of a pass is todo, pending (a trainer has it), done or discarded. The caller commits the changes that ``take``
returns before any of them becomes visible. If the commit fails, the queue is discarded and made again with ``resume``
from the last commit. So a failed commit changes nothing, and every restart takes the same path. Events are recorded as
messages.

Rules, each with a named test:

- A report counts only with the key of the dispatch: pass, task, epoch, trainer's incarnation. Any other is stale.
- The end of a pass is decided after every change.
- The tasks of a lost trainer return to the head at once. A failed or overdue task goes to the tail; a released one to
  the head, without blame.
- A task is discarded for this pass after more than ``failure_cap`` failures, and only if two different trainers failed
  on it or fewer than two are alive. After two failures of one trainer alone, other trainers try first.
- A task whose data two trainers cannot read fails the job, or is left out of the pass, as the script requests.
- With ``plan.quarantine`` a task that would be discarded is searched instead, once the job has done any task at all.
  Its chunks become tasks, then pieces of a chunk, down to a single record. That record is left out for the rest of the
  job when it fails on two trainers (or twice on the only one). A failure report with a place saves most of the search.
- ``sync`` mode: tasks are assigned to the live trainers in turn when the pass opens. A trainer is given only its own
  tasks, in order, so that every run does the same. Tasks without an owner are assigned again. A newcomer in the middle
  of a pass gets its share from the ends of the longest hands. The hand of a live trainer without contact for long is
  assigned to active trainers.
- ``async`` mode: any request gets the next task. When none is left, the task under way for longest, and for longer than
  usual, is given to an idle trainer a second time. The first finish counts, the other is stale. A failure of one of the
  two counts against the task, and the outcome is decided with the other. In ``sync`` mode no trainer is idle before the
  others are: a step waits for all of them, and the records of a task done twice would count twice in it.
- With ``plan.prefetch`` a trainer is given its next tasks with the one that it requests, as long as enough are left for
  the others. No trainer is blamed for such a task before it is begun, and no failure counts against the task.
  Prefetched tasks never stay with a trainer that has nothing else to do: the first is begun, they return to the head,
  or its timer runs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from runtime.master.messages import Ahead, JobDone, PassEnd, Task, Trainer, Unread, Wait
from runtime.master.queue.assignment import Assigner
from runtime.master.queue.failure_attribution import Blame
from runtime.master.queue.passes import Passes
from runtime.master.queue.preemption import Preemption
from runtime.master.queue.prefetch import Prefetch
from runtime.master.queue.slow_tasks import Durations, SlowTasks
from runtime.master.queue.task_states import Board
from runtime.master.task_table import TaskTable
from runtime.master.types import (
    NO_TIMER,
    Changes,
    Entry,
    Happening,
    Head,
    Key,
    Plan,
    Saved,
    Saver,
    Status,
    Timer,
    Verdict,
)
from runtime.messages import Message
from runtime.messages import training as messages

WAIT_SECONDS = 0.5
# A trainer without contact for this many task timeouts loses its hand. The time is long because it may be evaluating.
_SILENCE = 5
# A task may be extended up to this many times its timeout.
_EXTENSIONS = 3


class TaskQueue:
    """The task queue. Create one with ``begin``; change it only by its public methods.

    ``board`` has the state of every task, ``assigner`` the assignment. ``pass_id`` is -1 before the first pass and
    ``plan.passes`` after the last. The parts ``Passes``, ``Prefetch``, ``SlowTasks``, ``Blame`` and ``Preemption``
    decide. After every public method, a pass has a task that is todo or pending, or has ended.
    """

    def __init__(self, plan: Plan, table: TaskTable, start_by: float) -> None:
        self.plan = plan
        self.table = table
        self.board = Board(plan, table)
        self.assigner = Assigner(self.board)
        self.durations = Durations()
        self.saver: Saver | None = None
        self.failed = ""
        self.happenings: list[Happening] = []
        self._passes = Passes(self.board, self.assigner, self._record, start_by)
        self._prefetch = Prefetch(self.board, self.assigner)
        self._slow_tasks = SlowTasks(self.board, self.assigner, self._report)
        self._blame = Blame(self.board, self.assigner, self._report)
        self._preemption = Preemption(self.board, self.assigner, self._blame, self._report)

    @classmethod
    def begin(cls, plan: Plan, table: TaskTable, now: float) -> TaskQueue:
        """Create the queue of a new job. A job without records is done at once."""
        queue = cls(plan, table, now + plan.start_grace)
        queue.board.entries = [Entry() for _ in table.tasks]
        if not table.tasks:
            queue.board.pass_id = plan.passes
            if table.dataset:  # a job without a dataset was reported when its table was made
                queue._report("warning", messages.DATASET_EMPTY(dataset=table.dataset), True)
        return queue

    @classmethod
    def resume(cls, plan: Plan, table: TaskTable, saved: Saved) -> TaskQueue:
        """Restore the job as it was committed, at the time of that commit: the time without a master does not count.

        A trainer keeps its task, or the right to save the model, with the time that was left. Every hand is as it was
        assigned.
        """
        head, assignment = saved.head, saved.assignment
        queue = cls(plan, table, head.at + plan.start_grace)
        queue.failed, queue.saver, queue._passes.begun = head.failed, head.saver, head.at
        queue.board.quarantine = saved.quarantine
        goes_on = 0 <= head.pass_id < plan.passes
        queue.board.restore(head.pass_id, saved.entries, assignment.parts if goes_on else ())
        if head.usual is not None:
            queue.durations = queue.durations.add(head.usual)
        queue.assigner.live = assignment.live
        queue.assigner.last_contact = dict.fromkeys(assignment.live, head.at)
        if goes_on:
            queue.board.pending = {i for i, one in enumerate(queue.entries) if one.status is Status.PENDING}
            queue.assigner.restore(assignment)
        return queue

    # --- Committing --------------------------------------------------------------------------------------------------
    def take(self, now: float) -> Changes:
        """Return the changes since the last call."""
        board, assigner = self.board, self.assigner
        assignment = assigner.assignment() if assigner.assignment_changed else None
        quarantine = board.quarantine if board.condemned else None
        changes = Changes(self.head(now), tuple(sorted(board.changed)), assignment, quarantine, tuple(self.happenings))
        board.changed, board.condemned, assigner.assignment_changed, self.happenings = set(), False, False, []
        return changes

    def head(self, now: float) -> Head:
        return Head(now, self.pass_id, self.failed, self.saver, self.durations.usual)

    # --- Reading -----------------------------------------------------------------------------------------------------
    @property
    def pass_id(self) -> int:
        return self.board.pass_id

    @property
    def entries(self) -> Sequence[Entry]:
        return self.board.entries

    @property
    def live(self) -> tuple[Trainer, ...]:
        return self.assigner.live

    @property
    def open(self) -> bool:
        return not self.failed and self._passes.open

    @property
    def finished(self) -> bool:
        return not self.failed and self.pass_id >= self.plan.passes

    def count(self, status: Status) -> int:
        return self.board.count(status)

    def next_deadline(self, now: float) -> float | None:
        """Return when ``tick`` has something to do if nothing else happens before."""
        if self.pass_id < 0:
            start_by = self._passes.start_by
            return start_by if now < start_by else None
        pending = [self.entries[task_id] for task_id in self.board.pending]
        overdue = [entry.timer.deadline for entry in pending if entry.timer != NO_TIMER]
        overdue += [entry.rival.timer.deadline for entry in pending if entry.rival]
        contact, hands = self.assigner.last_contact, self.assigner.hands
        silent = [contact[trainer] + self._patience for trainer, hand in hands.items() if hand]
        return min([*overdue, *(at for at in silent if now < at)], default=None)

    # --- Requests of trainers -----------------------------------------------------------------------------------------
    def get(self, trainer: Trainer, request: int, ended: int | None, now: float) -> Task | Wait | PassEnd | JobDone:
        """Answer a trainer's request for work.

        ``ended`` is the last pass whose end the trainer received, None if there is none. So a lost answer costs nothing
        and the master need not remember. A repeated request that was answered with a task gets that task again.
        """
        if trainer in self.live:
            self.assigner.last_contact[trainer] = now
        repeated = self.board.answered(trainer, request)
        if repeated is not None:
            return repeated
        if ended is not None and ended + 1 < self.pass_id:
            return PassEnd(ended + 1)
        if self.finished:
            return JobDone()
        timer = Timer(now, now + self.durations.timeout)
        task = self._first_task(trainer, request, timer)
        if task is not None:
            return self._prefetch.add_to(task, trainer, self.durations.usual)
        slow = self._slow_tasks.select(trainer, self.durations.usual, now) if self.open else None
        if slow is not None:
            return self.board.dispatch_again(slow, trainer, request, timer)
        # Parameter servers wait for every trainer in a synchronous pass, so a trainer without a task must leave it.
        if self.plan.sync and self.open and trainer in self.live and ended != self.pass_id:
            return PassEnd(self.pass_id)
        return Wait(WAIT_SECONDS)

    def ahead(self, trainer: Trainer, now: float) -> Ahead:
        """Return the tasks that follow a trainer's current task, as far as they are decided."""
        if trainer not in self.live or not self.open:
            return Ahead()
        self.assigner.last_contact[trainer] = now
        return self._prefetch.ahead(trainer, self.durations.usual)

    def begun(self, key: Key, now: float) -> Verdict:
        """The trainer has begun a prefetched task without a request. Its timer runs from now on."""
        if not self._holds(key, now):
            return Verdict.STALE
        self._prefetch.begun(key, Timer(now, now + self.durations.timeout))
        return Verdict.OK

    def _first_task(self, trainer: Trainer, request: int, timer: Timer) -> Task | None:
        """The prefetched task, the next one in the queue, or one that waits behind a slow task."""
        if not self.open:
            return None
        task = self._prefetch.begin(trainer, request, timer)
        if task is not None:
            return task
        task_id = self.assigner.take(trainer)
        since = None if task_id is not None else self._slow_tasks.since(trainer, self.durations.usual, timer.begun)
        if since is not None:
            task_id = self._prefetch.stuck(trainer, since)
        return None if task_id is None else self.board.dispatch(task_id, trainer, request, timer)

    def done(self, key: Key, now: float) -> Verdict:
        """The task's last gradient was accepted. May be reported twice."""
        if self.board.is_finished(key):
            return Verdict.OK
        if not self._holds(key, now):
            return Verdict.STALE
        entry = self.entries[key.task_id]
        if entry.timer != NO_TIMER:  # otherwise it was prefetched and begun without a request
            self.durations = self.durations.add(now - entry.timer.begun)
        self.board.settle(key.task_id, entry._replace(status=Status.DONE, failures=0, blamed=()))
        self._settle(now)
        return Verdict.OK

    def fail(self, key: Key, why: str, now: float, place: tuple[int, int] | None = None) -> Verdict:
        """The trainer failed on the task: why, and at which records (first, end) if known."""
        if not self._holds(key, now):
            return Verdict.STALE
        self._report("task", messages.TASK_FAILED(task=key.task_id, trainer=key.trainer, why=why), True)
        self._blame.blame(key.task_id, self.assigner.to_tail, place)
        self._preemption.take_prefetched(key.trainer)
        self._settle(now)
        return Verdict.OK

    def cannot_read(self, key: Key, why: str, unread: Unread, now: float) -> Verdict:
        """The trainer cannot read the task's data: why, and what to do if no trainer can."""
        if not self._holds(key, now):
            return Verdict.STALE
        self._report("task", messages.TASK_FAILED(task=key.task_id, trainer=key.trainer, why=why), True)
        if failed := self._blame.cannot_read(key.task_id, why, unread):
            self._fail(failed)
        self._preemption.take_prefetched(key.trainer)
        self._settle(now)
        return Verdict.OK

    def release(self, key: Key, now: float) -> Verdict:
        """The trainer returns the task because it has to leave. Nobody is blamed."""
        if not self._holds(key, now):
            return Verdict.STALE
        self._preemption.take_prefetched(key.trainer)
        if key.task_id in self.board.pending:  # it was not the prefetched one
            self._blame.put_back(key.task_id, self.entries[key.task_id], self.assigner.to_head)
        self._settle(now)
        return Verdict.OK

    def extend(self, key: Key, now: float) -> Verdict:
        """Extend the task by its full timeout from now, up to three times the timeout in all."""
        if not self._holds(key, now):
            return Verdict.STALE
        self._prefetch.begun(key, Timer(now, now + self.durations.timeout))
        entry = self.entries[key.task_id]
        limit = entry.timer.begun + _EXTENSIONS * self.durations.timeout
        deadline = max(entry.timer.deadline, min(now + self.durations.timeout, limit))
        self.board.write(key.task_id, entry._replace(timer=entry.timer._replace(deadline=deadline)))
        return Verdict.OK

    def save_request(self, trainer: Trainer, seconds: float, now: float) -> bool:
        """Whether this trainer saves the model, for ``seconds``. The holder may ask again."""
        saver = self.saver
        if trainer not in self.live:
            return False
        if saver and saver.trainer != trainer and saver.trainer in self.live and now < saver.deadline:
            return False
        self.saver = Saver(trainer, now + seconds)
        return True

    # --- Members, deadlines -------------------------------------------------------------------------------------------
    def members(self, live: Collection[Trainer], now: float) -> None:
        """Set the live trainers. Lost trainers lose their tasks; tasks without an owner are assigned."""
        joined, left = sorted(set(live) - set(self.live)), sorted(set(self.live) - set(live))
        if not joined and not left:
            return
        was_open = self.open
        self.assigner.members(live, now)
        for trainer in joined:
            self._report("member", messages.TRAINER_JOINED(trainer=trainer), True)
        for trainer in left:
            self._report("member", _left(str(trainer), self.board.held_by(trainer)), True)
        self._preemption.take_from_the_lost()
        self._settle(now)
        for trainer in joined if was_open and self.open and self.plan.sync else ():
            self.assigner.share_with(trainer)

    def tick(self, now: float) -> None:
        """Take back overdue tasks and those of silent trainers, and open the first pass when it is due."""
        self._preemption.take_overdue(now)
        self._preemption.take_from_the_silent(now, self._patience)
        self._settle(now)

    def _holds(self, key: Key, now: float) -> bool:
        held = self.board.holds(key)
        if held:
            self.assigner.last_contact[key.trainer] = now
            self.board.bring_forward(key.task_id, key.trainer)
        return held

    @property
    def _patience(self) -> float:
        return _SILENCE * self.durations.timeout

    def _settle(self, now: float) -> None:
        """Apply what follows from any change: end and begin passes, assign tasks without an owner."""
        if self.pass_id < 0 and not self.failed and self._passes.may_start(now):
            self._passes.start(now, self._patience)
        while self.open and not self.board.pending and self.assigner.empty:
            if failed := self._passes.end(now):
                self._fail(failed)
        if self.open and self.plan.sync and self.assigner.free:
            self.assigner.assign_free(now, self._patience)
        self._prefetch.start_clocks(Timer(now, now + self.durations.timeout))

    def _fail(self, why: str) -> None:
        """Fail the job. The first reason counts."""
        if not self.failed:
            self.failed = why
            self._report("failed", why, True)

    def _report(self, kind: str, text: str, notable: bool = False) -> None:
        self._record(Happening(kind, text, notable))

    def _record(self, happening: Happening) -> None:
        self.happenings.append(happening)


def _left(trainer: str, held: Sequence[int]) -> Message:
    """Return the message for a trainer that left, with the tasks that return to the queue."""
    if not held:
        return messages.TRAINER_LEFT(trainer=trainer)
    if len(held) == 1:
        return messages.TRAINER_LEFT_TASK_RETURNED(trainer=trainer, task=held[0])
    return messages.TRAINER_LEFT_TASKS_RETURNED(trainer=trainer, tasks=", ".join(map(str, held)))
