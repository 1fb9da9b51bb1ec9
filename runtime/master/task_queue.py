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

from collections import deque
from collections.abc import Collection, Sequence

from runtime.master.assignment import Assigner
from runtime.master.failure_attribution import Blame
from runtime.master.messages import Ahead, JobDone, PassEnd, Task, Trainer, Unread, Wait
from runtime.master.prefetch import Prefetch
from runtime.master.task_durations import Durations
from runtime.master.task_states import Board
from runtime.master.task_table import Span, TaskTable
from runtime.master.types import (
    NO_TIMER,
    Assignment,
    Bad,
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
from runtime.messages import Message, Template, paragraph
from runtime.messages import training as messages
from runtime.messages.composition import listed

WAIT_SECONDS = 0.5
# A trainer without contact for this many task timeouts loses its hand. The time is long because it may be evaluating.
_SILENCE = 5
# A task may be extended up to this many times its timeout.
_EXTENSIONS = 3
# A task is slow after this many times the usual duration, and not before this many seconds.
_SLOW_FACTOR = 1.5
_SLOW_SECONDS = 5.0


class TaskQueue:
    """The task queue. Create one with ``begin``; change it only by its public methods.

    ``board`` has the state of every task, ``assigner`` the assignment. ``pass_id`` is -1 before the first pass and
    ``plan.passes`` after the last.
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
        self._start_by = start_by
        self._pass_begun = 0.0
        self._prefetch = Prefetch(self.board, self.assigner)
        self._blame = Blame(self.board, self.assigner, self._report)

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
        queue.failed, queue.saver, queue._pass_begun = head.failed, head.saver, head.at
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
        assignment = self.assignment() if assigner.assignment_changed else None
        quarantine = board.quarantine if board.condemned else None
        changes = Changes(self.head(now), tuple(sorted(board.changed)), assignment, quarantine, tuple(self.happenings))
        board.changed, board.condemned, assigner.assignment_changed, self.happenings = set(), False, False, []
        return changes

    def head(self, now: float) -> Head:
        return Head(now, self.pass_id, self.failed, self.saver, self.durations.usual)

    def assignment(self) -> Assignment:
        return self.assigner.assignment()

    # --- Reading -----------------------------------------------------------------------------------------------------
    @property
    def pass_id(self) -> int:
        return self.board.pass_id

    @property
    def entries(self) -> Sequence[Entry]:
        return self.board.entries

    @property
    def pending(self) -> set[int]:
        return self.board.pending

    @property
    def free(self) -> deque[int]:
        return self.assigner.free

    @property
    def hands(self) -> dict[Trainer, deque[int]]:
        return self.assigner.hands

    @property
    def live(self) -> tuple[Trainer, ...]:
        return self.assigner.live

    @property
    def quarantine(self) -> tuple[Bad, ...]:
        return self.board.quarantine

    @property
    def open(self) -> bool:
        return not self.failed and 0 <= self.pass_id < self.plan.passes

    @property
    def finished(self) -> bool:
        return not self.failed and self.pass_id >= self.plan.passes

    def count(self, status: Status) -> int:
        return self.board.count(status)

    def next_deadline(self, now: float) -> float | None:
        """Return when ``tick`` has something to do if nothing else happens before."""
        if self.pass_id < 0:
            return self._start_by if now < self._start_by else None
        pending = [self.entries[task_id] for task_id in self.pending]
        overdue = [entry.timer.deadline for entry in pending if entry.timer != NO_TIMER]
        overdue += [entry.rival.timer.deadline for entry in pending if entry.rival]
        silent = [self.assigner.last_contact[trainer] + self._patience for trainer, hand in self.hands.items() if hand]
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
        slow = self._slow_task(trainer, now)
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
        if task_id is None and (since := self._slow_since(trainer, timer.begun)) is not None:
            task_id = self._prefetch.stuck(trainer, since)
        return None if task_id is None else self.board.dispatch(task_id, trainer, request, timer)

    def _return_prefetched(self, trainer: Trainer, but: int | None = None) -> None:
        """Return prefetched tasks to the head of the queue after an unusual report, without blame."""
        for task_id in reversed(self.board.prefetched_by(trainer)):
            if task_id != but:
                self._blame.put_back(task_id, self.entries[task_id], self.assigner.to_head)

    def _slow_since(self, trainer: Trainer, now: float) -> float | None:
        """Tasks begun before this time are slow; None if this trainer does not take over tasks."""
        usual = self.durations.usual
        if self.plan.sync or usual is None or trainer not in self.live or not self.open or not self.assigner.empty:
            return None
        return now - max(_SLOW_SECONDS, _SLOW_FACTOR * usual)

    def _slow_task(self, trainer: Trainer, now: float) -> int | None:
        """The task that this idle trainer should also try, if there is one."""
        usual, since = self.durations.usual, self._slow_since(trainer, now)
        if usual is None or since is None:
            return None
        slow = [task_id for task_id in self.pending if self._may_try_too(trainer, self.entries[task_id], since)]
        task_id = min(slow, key=lambda task_id: (self.entries[task_id].timer.begun, task_id), default=None)
        if task_id is not None:
            entry = self.entries[task_id]
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

    def _may_try_too(self, trainer: Trainer, entry: Entry, since: float) -> bool:
        indices = {holder.index for holder in entry.holders}.union(entry.blamed)
        is_slow = entry.timer.begun < since and not entry.prefetched
        return entry.rival is None and is_slow and trainer.index not in indices

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
        self._return_prefetched(key.trainer)
        self._settle(now)
        return Verdict.OK

    def cannot_read(self, key: Key, why: str, unread: Unread, now: float) -> Verdict:
        """The trainer cannot read the task's data: why, and what to do if no trainer can."""
        if not self._holds(key, now):
            return Verdict.STALE
        self._report("task", messages.TASK_FAILED(task=key.task_id, trainer=key.trainer, why=why), True)
        if failed := self._blame.cannot_read(key.task_id, why, unread):
            self._fail(failed)
        self._return_prefetched(key.trainer)
        self._settle(now)
        return Verdict.OK

    def release(self, key: Key, now: float) -> Verdict:
        """The trainer returns the task because it has to leave. Nobody is blamed."""
        if not self._holds(key, now):
            return Verdict.STALE
        self._return_prefetched(key.trainer)
        if key.task_id in self.pending:  # it was not the prefetched one
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
        self._take_back(now)
        for trainer in joined if was_open and self.open and self.plan.sync else ():
            self.assigner.share_with(trainer)

    def tick(self, now: float) -> None:
        """Take back overdue tasks and those of silent trainers, and open the first pass when it is due."""
        for task_id in sorted(self.pending):
            for holder in self.entries[task_id].holders if task_id in self.pending else ():
                timer = self.board.bring_forward(task_id, holder).timer
                if timer != NO_TIMER and timer.deadline <= now:
                    self._return_prefetched(holder, but=task_id)
                    self._report("task", messages.TASK_OVERDUE(task=task_id, trainer=holder), True)
                    self._blame.blame(task_id, self.assigner.to_tail)
        for trainer in self.assigner.free_tasks_of_the_silent(now, self._patience):
            self._report("task", messages.TRAINER_SILENT(trainer=trainer), True)
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

    def _take_back(self, now: float) -> None:
        """Free the tasks of lost trainers, pending ones first, in order of their numbers."""
        self.assigner.free_tasks_of_the_gone()
        for task_id in sorted(self.pending, reverse=True):
            for holder in self.entries[task_id].holders:
                if holder in self.live:
                    continue
                entry = self.board.bring_forward(task_id, holder)
                if entry.prefetched:
                    self._blame.put_back(task_id, entry, self.assigner.to_head)
                else:
                    self._blame.blame(task_id, self.assigner.to_head)
        self._settle(now)

    # --- Passes ------------------------------------------------------------------------------------------------------
    def _settle(self, now: float) -> None:
        """Apply what follows from any change: end and begin passes, assign tasks without an owner."""
        if self.pass_id < 0 and not self.failed and self._may_start(now):
            self._start(now)
        while self.open and not self.pending and self.assigner.empty:
            self._end_pass(now)
        if self.open and self.plan.sync and self.free:
            self.assigner.assign_free(now, self._patience)
        self._prefetch.start_clocks(Timer(now, now + self.durations.timeout))

    def _may_start(self, now: float) -> bool:
        needed = self.plan.trainers if now < self._start_by else self.plan.min_trainers
        return len(self.live) >= max(1, needed)

    def _start(self, now: float) -> None:
        """Begin the first pass, or the one of an earlier attempt with the same assignment."""
        resume = self.plan.resume
        self._begin_pass(resume.pass_id if resume else 0, now)
        if resume and self.open:
            if self.plan.sync:
                self.assigner.assign_free(now, self._patience)
            self.board.resume(resume)
            self.assigner.strike_done()
            done, number = _counted(self.count(Status.DONE), _TASKS), self.pass_id + 1
            self._report("job", messages.DATA_RESUMES(number=number, tasks=done), True)

    def _begin_pass(self, pass_id: int, now: float) -> None:
        self._pass_begun = now
        if pass_id >= self.plan.passes:
            self.board.pass_id = pass_id
            self._report("job", self._all_done(), True)
            return
        self.board.begin_pass(pass_id)
        self.assigner.begin_pass(now)

    def _end_pass(self, now: float) -> None:
        discarded = [i for i, entry in enumerate(self.entries) if entry.status is Status.DISCARDED]
        self._report_pass(discarded, now - self._pass_begun)
        if not self.board.has(Status.DONE):
            named = self.table.describe(self.board.span(i) for i in discarded)
            self._fail(
                paragraph(
                    messages.NO_TASK_DONE(number=self.pass_id + 1, records=named, dataset=self.table.dataset),
                    messages.SEE_TRAINER_LOGS(),
                )
            )
            return
        self._begin_pass(self.pass_id + 1, now)

    def _fail(self, why: str) -> None:
        """Fail the job. The first reason counts."""
        if not self.failed:
            self.failed = why
            self._report("failed", why, True)

    # --- Messages -----------------------------------------------------------------------------------------------------
    def _all_done(self) -> Message:
        if not self.quarantine:
            return messages.ALL_PASSES_DONE(count=self.plan.passes)
        spans = (Span(bad.task_id, bad.record, bad.record + 1) for bad in self.board.quarantine)
        return messages.ALL_PASSES_DONE_EXCEPT(
            count=self.plan.passes, records=self.table.describe(spans), dataset=self.table.dataset
        )

    def _report_pass(self, discarded: Sequence[int], seconds: float) -> None:
        records = self.table.records - sum(self.board.span(i).records for i in discarded)
        details = [_counted(records, _RECORDS)]
        if seconds > 0:
            details.append(messages.RECORDS_PER_SECOND(rate=f"{records / seconds:,.0f}"))
        details.append(_counted(len(self.live), _TRAINERS))
        if discarded:
            details.append(messages.TASKS_SKIPPED(tasks=_counted(len(discarded), _TASKS)))
        text = messages.PASS_DONE_DETAILS(
            number=self.pass_id + 1, passes=self.plan.passes, seconds=f"{seconds:.1f}", details=listed(details)
        )
        between = 0 < self.pass_id < self.plan.passes - 1
        self.happenings.append(Happening("pass", text, frequent=between and not discarded))

    def _report(self, kind: str, text: str, notable: bool = False) -> None:
        self.happenings.append(Happening(kind, text, notable))


def _left(trainer: str, held: Sequence[int]) -> Message:
    """Return the message for a trainer that left, with the tasks that return to the queue."""
    if not held:
        return messages.TRAINER_LEFT(trainer=trainer)
    if len(held) == 1:
        return messages.TRAINER_LEFT_TASK_RETURNED(trainer=trainer, task=held[0])
    return messages.TRAINER_LEFT_TASKS_RETURNED(trainer=trainer, tasks=", ".join(map(str, held)))


_TASKS = (messages.TASK_COUNT_ONE, messages.TASK_COUNT)
_RECORDS = (messages.RECORD_COUNT_ONE, messages.RECORD_COUNT)
_TRAINERS = (messages.TRAINER_COUNT_ONE, messages.TRAINER_COUNT)


def _counted(count: int, noun: tuple[Template, Template]) -> Message:
    one, several = noun
    return one(count=1) if count == 1 else several(count=f"{count:,}")
