"""The task queue of a job, pure: every method takes the time and answers; nothing here waits, reads or writes.

A task of a pass is todo, pending (a trainer has it), done or discarded. Whoever serves the queue commits what ``take``
says has changed before anybody hears of it. If the commit fails, the queue is thrown away and made again with
``resume`` from what was committed before: so a failed commit changes nothing, and every restart takes the same way.
What happened is told in words.

Rules, each with a named test:

- A report counts only with the key of the dispatch: pass, task, epoch, trainer's incarnation. Another is stale.
- The end of a pass is decided after every change, whichever it was.
- The tasks of a lost trainer go back to the head at once. A failed or overdue task goes to the tail; a released one to
  the head, without blame.
- A task is discarded for this pass after more than ``failure_cap`` failures, and only if two different trainers failed
  on it or fewer than two live. After two failures of one trainer alone, others go first.
- With ``plan.quarantine`` a task that would be discarded is searched instead, once the job has done any task at all:
  its chunks become tasks, then pieces of a chunk, down to a single record, which is left out for the rest of the job
  when it fails on two trainers (or twice on the only one). Who fails and names the place saves most of the search.
- ``sync`` mode: tasks are dealt to the live trainers in turn when the pass opens, and a trainer is given only its own,
  in order, so that every run does the same. Tasks without owner are dealt anew. A newcomer in the middle of a pass gets
  its share from the ends of the longest hands.
  The hand of a trainer that lives but has long said nothing is dealt to those who speak.
- ``async`` mode: whoever asks gets the next task.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import pairwise
from typing import NamedTuple

from runtime.master.durations import Durations
from runtime.master.messages import JobDone, PassEnd, Task, Trainer, Wait
from runtime.master.table import Span, TaskTable

FAILURE_CAP = 3
START_GRACE_SECONDS = 20.0
WAIT_SECONDS = 0.5
# So many failures of one trainer alone, and a task is given to others first.
_FAILURES_BEFORE_OTHERS = 2
# A trainer that has said nothing for so many timeouts of a task does not keep its hand. Long, for it may be evaluating.
_SILENCE = 5
# A task may be extended up to this many times its timeout.
_EXTENSIONS = 3
# Into how many pieces a part of a chunk is cut: each step of the search costs a trainer, so few steps and many pieces.
_PIECES = 8
# A task that has cost so many failures in a pass is not searched further: not a record is bad, but all of it.
_SEARCH_LIMIT = 64


class Status(IntEnum):
    TODO = 0
    PENDING = 1
    DONE = 2
    DISCARDED = 3
    SPLIT = 4  # its pieces stand for it in this pass; or the number of a piece that is none now


class Timer(NamedTuple):
    """When a pending task was handed out and when it is overdue."""

    begun: float
    deadline: float


NO_TIMER = Timer(0.0, 0.0)


class Entry(NamedTuple):
    """The few bytes of state of one task.

    ``trainer`` has it (pending) or finished it (done); with ``pass_id`` and ``epoch`` that is the dispatch's key.
    ``request`` is the number of the trainer's request that was answered with it. ``failures`` and ``blamed`` (indices
    of trainers) count within the pass, ``failures_ever`` does not. ``timer`` runs while it is pending.
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
    """Something worth telling. ``notable`` ones belong on the job's timeline; all of them in the log, but of the
    ``frequent`` ones only as many as a reader can follow.
    """

    kind: str
    text: str
    notable: bool = False
    frequent: bool = False


class Saver(NamedTuple):
    """Who may save the model, and until when."""

    trainer: Trainer
    deadline: float


class Bad(NamedTuple):
    """A record that is left out for the rest of the job, by its number within its task."""

    task_id: int
    record: int


class Deal(NamedTuple):
    """Who lives, and whose turn each task is: ``hands`` of trainers, in order, and ``free`` for anybody.

    ``parts`` are the pieces of tasks that stand for them in this pass; they are numbered after the tasks of the table.

    Read back later, those of its tasks count that are todo: taking a task from a hand does not change the rest.
    """

    live: tuple[Trainer, ...] = ()
    free: Sequence[int] = ()
    hands: tuple[tuple[Trainer, Sequence[int]], ...] = ()
    parts: tuple[Span, ...] = ()


class Head(NamedTuple):
    """What is committed of the queue as a whole. ``at``: the queue's time then; ``usual``: how long tasks take."""

    at: float
    pass_id: int
    failed: str = ""
    saver: Saver | None = None
    usual: float | None = None


class Saved(NamedTuple):
    """What is committed of a queue, as it is read back. Entries of an earlier pass are as that pass left them."""

    head: Head
    entries: Sequence[Entry]
    deal: Deal
    quarantine: tuple[Bad, ...] = ()


class Changes(NamedTuple):
    """What has to be committed: the head, the tasks with these numbers, deal and quarantine unless they are None."""

    head: Head
    tasks: tuple[int, ...]
    deal: Deal | None
    quarantine: tuple[Bad, ...] | None
    happenings: tuple[Happening, ...]


@dataclass(frozen=True)
class Plan:
    """What is fixed for the whole job."""

    passes: int
    sync: bool = True
    trainers: int = 1
    min_trainers: int = 1
    failure_cap: int = FAILURE_CAP
    start_grace: float = START_GRACE_SECONDS
    quarantine: bool = False


@dataclass
class TaskQueue:
    """The state. Make one with ``begin``; change it by its public methods only.

    ``pass_id`` is -1 before the first pass and ``plan.passes`` after the last. ``hands`` holds the todo tasks that are
    dealt to a trainer, ``free`` those that are nobody's; ``heard`` is when each trainer last said something.
    ``dealt`` says that hands, ``free`` or ``live`` changed in another way than by taking a task.
    """

    plan: Plan
    table: TaskTable
    start_by: float
    pass_id: int = -1
    pass_begun: float = 0.0
    entries: list[Entry] = field(default_factory=list)
    free: deque[int] = field(default_factory=deque)
    hands: dict[Trainer, deque[int]] = field(default_factory=dict)
    parts: list[Span] = field(default_factory=list)
    quarantine: tuple[Bad, ...] = ()
    pending: set[int] = field(default_factory=set)
    live: tuple[Trainer, ...] = ()
    heard: dict[Trainer, float] = field(default_factory=dict)
    durations: Durations = field(default_factory=Durations)
    saver: Saver | None = None
    failed: str = ""
    changed: set[int] = field(default_factory=set)
    dealt: bool = False
    condemned: bool = False
    happenings: list[Happening] = field(default_factory=list)

    @classmethod
    def begin(cls, plan: Plan, table: TaskTable, now: float) -> TaskQueue:
        """A fresh job. One without records is done at once."""
        queue = cls(plan, table, now + plan.start_grace, entries=[Entry() for _ in table.tasks])
        if not table.tasks:
            queue.pass_id = plan.passes
            if table.dataset:  # that a job names none was told where its table was made
                queue._tell("warning", f"The data set {table.dataset} has no records: there is nothing to train.", True)
        return queue

    @classmethod
    def resume(cls, plan: Plan, table: TaskTable, saved: Saved) -> TaskQueue:
        """The job as it was committed, at the time of that commit: the time without a master does not count.

        Whoever has a task or saves the model keeps it with the time that was left; every hand is as it was dealt.
        """
        head = saved.head
        queue = cls(plan, table, head.at + plan.start_grace, head.pass_id, head.at, failed=head.failed)
        queue.entries = [entry if entry.pass_id == head.pass_id else fresh(entry) for entry in saved.entries]
        queue.quarantine = saved.quarantine
        queue.parts = list(saved.deal.parts) if queue.open else []
        queue._retire_parts()
        queue.saver = head.saver
        if head.usual is not None:
            queue.durations = queue.durations.add(head.usual)
        queue.live = saved.deal.live
        queue.heard = dict.fromkeys(queue.live, head.at)
        if queue.open:
            queue.pending = {i for i, entry in enumerate(queue.entries) if entry.status is Status.PENDING}
            queue.free = queue._still_todo(saved.deal.free)
            queue.hands = {trainer: queue._still_todo(hand) for trainer, hand in saved.deal.hands}
        return queue

    def _still_todo(self, tasks: Iterable[int]) -> deque[int]:
        return deque(i for i in tasks if self.entries[i].status is Status.TODO)

    # --- Committing --------------------------------------------------------------------------------------------------
    def take(self, now: float) -> Changes:
        """What has changed since the last call."""
        deal = self.deal() if self.dealt else None
        quarantine = self.quarantine if self.condemned else None
        changes = Changes(self.head(now), tuple(sorted(self.changed)), deal, quarantine, tuple(self.happenings))
        self.changed, self.dealt, self.condemned, self.happenings = set(), False, False, []
        return changes

    def head(self, now: float) -> Head:
        return Head(now, self.pass_id, self.failed, self.saver, self.durations.usual)

    def deal(self) -> Deal:
        hands = tuple((who, tuple(hand)) for who, hand in self.hands.items())
        return Deal(self.live, tuple(self.free), hands, tuple(self.parts))

    # --- Reading -----------------------------------------------------------------------------------------------------
    @property
    def open(self) -> bool:
        return not self.failed and 0 <= self.pass_id < self.plan.passes

    @property
    def finished(self) -> bool:
        return not self.failed and self.pass_id >= self.plan.passes

    def count(self, status: Status) -> int:
        return sum(entry.status is status for entry in self.entries)

    def next_deadline(self, now: float) -> float | None:
        """When ``tick`` has something to do, if nothing else happens before."""
        if self.pass_id < 0:
            return self.start_by if now < self.start_by else None
        overdue = [self.entries[i].timer.deadline for i in self.pending]
        silent = [self.heard[trainer] + self._patience for trainer, hand in self.hands.items() if hand]
        return min([*overdue, *(at for at in silent if now < at)], default=None)

    # --- What trainers ask -------------------------------------------------------------------------------------------
    def get(self, trainer: Trainer, request: int, ended: int | None, now: float) -> Task | Wait | PassEnd | JobDone:
        """Answer a trainer that wants work.

        ``ended`` is the last pass that it was told the end of, None if it knows of none; so a lost answer costs
        nothing and the master need not remember. A request that was answered with a task gets that task again.
        """
        if trainer in self.live:
            self.heard[trainer] = now
        repeated = self._answered(trainer, request)
        if repeated is not None:
            return repeated
        if ended is not None and ended + 1 < self.pass_id:
            return PassEnd(ended + 1)
        if self.finished:
            return JobDone()
        task_id = self._take(trainer) if self.open else None
        if task_id is not None:
            return self._dispatch(task_id, trainer, request, now)
        # Parameter servers wait for all who take part in a synchronous pass, so one without a task must leave it.
        if self.plan.sync and self.open and trainer in self.live and ended != self.pass_id:
            return PassEnd(self.pass_id)
        return Wait(WAIT_SECONDS)

    def done(self, key: Key, now: float) -> Verdict:
        """The task's last gradient was accepted. Saying it twice is no harm."""
        if self._is_finished(key):
            return Verdict.OK
        if not self._holds(key, now):
            return Verdict.STALE
        self.durations = self.durations.add(now - self.entries[key.task_id].timer.begun)
        self._set(key.task_id, self.entries[key.task_id]._replace(status=Status.DONE, failures=0, blamed=()))
        self._settle(now)
        return Verdict.OK

    def fail(self, key: Key, why: str, now: float, place: tuple[int, int] | None = None) -> Verdict:
        """The trainer could not do the task, and says why, and at which records (first, end) if it knows."""
        if not self._holds(key, now):
            return Verdict.STALE
        self._tell("task", f"Task {key.task_id} failed on {key.trainer}: {why}", True)
        self._blame(key.task_id, self._to_tail, place)
        self._settle(now)
        return Verdict.OK

    def release(self, key: Key, now: float) -> Verdict:
        """The trainer hands the task back, for it has to leave. Nobody is blamed."""
        if not self._holds(key, now):
            return Verdict.STALE
        self._put_back(key.task_id, self.entries[key.task_id], self._to_head)
        self._settle(now)
        return Verdict.OK

    def extend(self, key: Key, now: float) -> Verdict:
        """The trainer needs longer: its full time again, up to three times in all."""
        if not self._holds(key, now):
            return Verdict.STALE
        entry = self.entries[key.task_id]
        limit = entry.timer.begun + _EXTENSIONS * self.durations.timeout
        deadline = max(entry.timer.deadline, min(now + self.durations.timeout, limit))
        self.entries[key.task_id] = entry._replace(timer=entry.timer._replace(deadline=deadline))
        self.changed.add(key.task_id)
        return Verdict.OK

    def save_request(self, trainer: Trainer, seconds: float, now: float) -> bool:
        """Whether this trainer is the one that saves the model, for so many seconds. The holder may ask again."""
        saver = self.saver
        if trainer not in self.live:
            return False
        if saver and saver.trainer != trainer and saver.trainer in self.live and now < saver.deadline:
            return False
        self.saver = Saver(trainer, now + seconds)
        return True

    # --- What happens ------------------------------------------------------------------------------------------------
    def members(self, live: Collection[Trainer], now: float) -> None:
        """The trainers that live now. Those that are gone lose their tasks; tasks without owner are dealt."""
        joined, left = sorted(set(live) - set(self.live)), sorted(set(self.live) - set(live))
        if not joined and not left:
            return
        self.live, self.dealt = tuple(sorted(live)), True
        self.heard = {trainer: self.heard.get(trainer, now) for trainer in self.live}
        for trainer in joined:
            self._tell("member", f"{trainer} joined.", True)
        for trainer in left:
            self._tell("member", f"{trainer} left{self._tasks_of(trainer)}.", True)
        self._take_back(now)
        for trainer in joined if self.open and self.plan.sync else ():
            self._share_with(trainer)

    def tick(self, now: float) -> None:
        """Take back what is overdue, from the silent too, and open the first pass when its time has come."""
        for task_id in sorted(i for i in self.pending if self.entries[i].timer.deadline <= now):
            holder = self.entries[task_id].trainer
            self._tell("task", f"Task {task_id} is overdue on {holder} and goes to the end of the queue.", True)
            self._blame(task_id, self._to_tail)
        silent = [trainer for trainer in self.hands if self.hands[trainer] and self._silent(trainer, now)]
        for trainer in silent if self._awake(now) else ():
            self._tell("task", f"{trainer} has not asked for its tasks for long; others take them over.", True)
            self.free.extend(self.hands.pop(trainer))
            self.dealt = True
        self._settle(now)

    # --- Dispatch ----------------------------------------------------------------------------------------------------
    def _answered(self, trainer: Trainer, request: int) -> Task | None:
        for task_id in self.pending:
            entry = self.entries[task_id]
            if entry.request == request and entry.trainer == trainer:
                return self._task(task_id)
        return None

    def _task(self, task_id: int) -> Task:
        span = self._span(task_id)
        return Task(
            self.pass_id,
            task_id,
            self.entries[task_id].epoch,
            self.table.tasks[span.task_id],
            self._ranges(span) if self._is_part(task_id) or self.quarantine else None,
        )

    def _take(self, trainer: Trainer) -> int | None:
        """Remove the next task for this trainer from the queue."""
        if trainer not in self.live:
            return None
        for queue in (self.hands.get(trainer), self.free):
            task_id = next((i for i in queue or () if not self._barred(i, trainer)), None)
            if queue is not None and task_id is not None:
                queue.remove(task_id)
                return task_id
        return None

    def _dispatch(self, task_id: int, trainer: Trainer, request: int, now: float) -> Task:
        entry = self.entries[task_id]
        self.entries[task_id] = entry._replace(
            status=Status.PENDING,
            pass_id=self.pass_id,
            epoch=entry.epoch + 1,
            trainer=trainer,
            request=request,
            timer=Timer(now, now + self.durations.timeout),
        )
        self.pending.add(task_id)
        self.changed.add(task_id)
        return self._task(task_id)

    def _barred(self, task_id: int, trainer: Trainer) -> bool:
        """Whether others should try first: only this trainer failed on the task, often, and another one lives."""
        entry = self.entries[task_id]
        return (
            entry.blamed == (trainer.index,)
            and entry.failures >= (1 if self._is_part(task_id) else _FAILURES_BEFORE_OTHERS)
            and any(other.index != trainer.index for other in self.live)
        )

    # --- Coming back -------------------------------------------------------------------------------------------------
    def _holds(self, key: Key, now: float) -> bool:
        held = self._names(key, Status.PENDING) and key.pass_id == self.pass_id
        if held:
            self.heard[key.trainer] = now
        return held

    def _is_finished(self, key: Key) -> bool:
        """By the same dispatch, in this pass or, if nobody has had the task since, in an earlier one."""
        before = key.pass_id < self.pass_id and (self._names(key, Status.TODO) or self._names(key, Status.SPLIT))
        return before or self._names(key, Status.DONE)

    def _names(self, key: Key, status: Status) -> bool:
        if not 0 <= key.task_id < len(self.entries):
            return False
        entry = self.entries[key.task_id]
        return (entry.status, entry.pass_id, entry.epoch, entry.trainer) == (
            status,
            key.pass_id,
            key.epoch,
            key.trainer,
        )

    def _set(self, task_id: int, entry: Entry) -> None:
        """Give a task that was pending its new state."""
        self.pending.remove(task_id)
        self.entries[task_id] = entry._replace(timer=NO_TIMER)
        self.changed.add(task_id)

    def _put_back(self, task_id: int, entry: Entry, place: Callable[[int, Trainer | None], None]) -> None:
        holder = entry.trainer
        self._set(task_id, entry._replace(status=Status.TODO, trainer=None))
        place(task_id, holder)
        self.dealt = True

    def _blame(
        self, task_id: int, place: Callable[[int, Trainer | None], None], where: tuple[int, int] | None = None
    ) -> None:
        entry = self.entries[task_id]
        culprits = {entry.trainer.index} if entry.trainer else set()
        entry = entry._replace(
            failures=entry.failures + 1,
            blamed=tuple(sorted(culprits.union(entry.blamed))),
            failures_ever=entry.failures_ever + 1,
        )
        span = self._span(task_id)
        suspect = self._suspect(span, where)
        if self._may_search(task_id, span) and (suspect or self._is_part(task_id) or self._guilty(entry)):
            self._split(task_id, entry, suspect)
        elif self._guilty(entry, self._last_cap(task_id)):
            self._discard(task_id, entry)
        else:
            self._put_back(task_id, entry, place)

    def _guilty(self, entry: Entry, cap: int | None = None) -> bool:
        """Whether it is the task's fault and not a trainer's."""
        allowed = self.plan.failure_cap if cap is None else cap
        return entry.failures > allowed and (len(entry.blamed) > 1 or len(self.live) < 2)

    def _last_cap(self, task_id: int) -> int:
        """The failures that are allowed before a task is left out: fewer for what is left of a search."""
        return min(1, self.plan.failure_cap) if self._is_part(task_id) else self.plan.failure_cap

    def _discard(self, task_id: int, entry: Entry) -> None:
        span = self._span(task_id)
        self._set(task_id, entry._replace(status=Status.DISCARDED))
        named = self.table.describe([span])
        if self.plan.quarantine and span.records == 1 and self._works():
            self.quarantine = (*self.quarantine, Bad(span.task_id, span.first))
            self.condemned = True
            where = f"{named[0].upper()}{named[1:]} of {self.table.dataset}"
            self._tell("quarantine", f"{where} is left out from now on: no trainer could do it.", True)
            return
        self._tell("task", f"Task {task_id} is left out of this pass after {entry.failures} failures: {named}.", True)

    def _to_tail(self, task_id: int, holder: Trainer | None) -> None:
        self._queue_for(task_id, holder).append(task_id)

    def _to_head(self, task_id: int, holder: Trainer | None) -> None:
        self._queue_for(task_id, holder).appendleft(task_id)

    def _queue_for(self, task_id: int, holder: Trainer | None) -> deque[int]:
        """The holder's hand, if there is one and the task may stay in it."""
        if holder is None or holder not in self.hands or self._barred(task_id, holder):
            return self.free
        return self.hands[holder]

    # --- The search for a bad record ---------------------------------------------------------------------------------
    def _is_part(self, task_id: int) -> bool:
        return task_id >= len(self.table.tasks)

    def _span(self, task_id: int) -> Span:
        return self.parts[task_id - len(self.table.tasks)] if self._is_part(task_id) else self.table.span(task_id)

    def _ranges(self, span: Span) -> tuple[tuple[int, int], ...]:
        """The records of a span that are not in quarantine."""
        bad = sorted(bad.record for bad in self.quarantine if bad.task_id == span.task_id)
        edges = [span.first - 1, *(record for record in bad if span.first <= record < span.end), span.end]
        return tuple((before + 1, after) for before, after in pairwise(edges) if before + 1 < after)

    def _suspect(self, span: Span, where: tuple[int, int] | None) -> Span | None:
        """What a trainer pointed at, if that is a part of the task."""
        if where is None:
            return None
        suspect = Span(span.task_id, max(span.first, where[0]), min(span.end, where[1]))
        return suspect if 0 < suspect.records < span.records else None

    def _may_search(self, task_id: int, span: Span) -> bool:
        """A script that can do nothing at all is no reason to search."""
        return (
            self.plan.quarantine
            and span.records > 1
            and self.entries[span.task_id].failures < _SEARCH_LIMIT
            and self._works()
        )

    def _works(self) -> bool:
        """Whether the job has done anything yet."""
        return self.pass_id > 0 or any(entry.status is Status.DONE for entry in self.entries)

    def _split(self, task_id: int, entry: Entry, suspect: Span | None) -> None:
        """Put pieces of a task in its place, at the tail of the queue."""
        span = self._span(task_id)
        self._set(task_id, entry._replace(status=Status.SPLIT, trainer=None))
        if self._is_part(task_id):
            root = self.entries[span.task_id]
            self.entries[span.task_id] = root._replace(failures=root.failures + 1)
            self.changed.add(span.task_id)
        if suspect is None:
            pieces = self.table.pieces(span, _PIECES)
        else:
            cuts = (span.first, suspect.first, suspect.end, span.end)
            pieces = [Span(span.task_id, *cut) for cut in pairwise(cuts)]
        for piece in pieces:
            if self._ranges(piece):
                self._add_part(piece)
        self._tell("task", f"Task {task_id} is searched for what is wrong in it: {self.table.describe([span])}.", True)

    def _add_part(self, span: Span) -> None:
        task_id = len(self.table.tasks) + len(self.parts)
        self.parts.append(span)
        if task_id == len(self.entries):
            self.entries.append(Entry())
        self.entries[task_id] = self.entries[task_id]._replace(status=Status.TODO, pass_id=self.pass_id)
        self.changed.add(task_id)
        self.free.append(task_id)
        self.dealt = True

    def _retire_parts(self) -> None:
        """Numbers of pieces that are none in this pass."""
        for task_id in range(len(self.table.tasks) + len(self.parts), len(self.entries)):
            self.entries[task_id] = fresh(self.entries[task_id])._replace(status=Status.SPLIT)

    # --- Members, deals, passes --------------------------------------------------------------------------------------
    def _tasks_of(self, trainer: Trainer) -> str:
        held = [i for i in sorted(self.pending) if self.entries[i].trainer == trainer]
        if not held:
            return ""
        named = ", ".join(map(str, held))
        return f", its task {named} goes back" if len(held) == 1 else f", its tasks {named} go back"

    @property
    def _patience(self) -> float:
        return _SILENCE * self.durations.timeout

    def _silent(self, trainer: Trainer, now: float) -> bool:
        return self.heard[trainer] + self._patience <= now

    def _awake(self, now: float) -> tuple[Trainer, ...]:
        return tuple(trainer for trainer in self.live if not self._silent(trainer, now))

    def _take_back(self, now: float) -> None:
        """Free what trainers that are gone had, pending ones first, in order of their numbers."""
        for trainer in [trainer for trainer in self.hands if trainer not in self.live]:
            self.free.extendleft(reversed(self.hands.pop(trainer)))
        orphans = [i for i in sorted(self.pending, reverse=True) if self.entries[i].trainer not in self.live]
        for task_id in orphans:
            self._blame(task_id, self._to_head)
        self._settle(now)

    def _settle(self, now: float) -> None:
        """What follows from any change: passes end and begin, tasks without owner are dealt."""
        if self.pass_id < 0 and not self.failed and self._may_start(now):
            self._begin_pass(0, now)
        while self.open and not self.pending and not self.free and not any(self.hands.values()):
            self._end_pass(now)
        if self.open and self.plan.sync and self.free:
            self._deal(now)

    def _may_start(self, now: float) -> bool:
        needed = self.plan.trainers if now < self.start_by else self.plan.min_trainers
        return len(self.live) >= max(1, needed)

    def _begin_pass(self, pass_id: int, now: float) -> None:
        self.pass_id, self.pass_begun = pass_id, now
        if self.finished:
            self._tell("job", f"All {self.plan.passes} passes are done{self._left_out()}.", True)
            return
        self.entries = [fresh(entry) for entry in self.entries]
        self.parts = []
        self._retire_parts()
        self.free = deque(range(len(self.table.tasks)))
        self.hands = {}
        self.dealt = True
        self.heard = dict.fromkeys(self.live, now)

    def _end_pass(self, now: float) -> None:
        discarded = [i for i, entry in enumerate(self.entries) if entry.status is Status.DISCARDED]
        self._tell_pass(discarded, now - self.pass_begun)
        if not any(entry.status is Status.DONE for entry in self.entries):
            named = self.table.describe(self._span(i) for i in discarded)
            self.failed = (
                f"Every task of pass {self.pass_id + 1} failed more than {self.plan.failure_cap} times: "
                f"{named} of {self.table.dataset}. Look at the trainers' logs for the reason."
            )
            self._tell("failed", self.failed, True)
            return
        self._begin_pass(self.pass_id + 1, now)

    def _left_out(self) -> str:
        if not self.quarantine:
            return ""
        spans = (Span(bad.task_id, bad.record, bad.record + 1) for bad in self.quarantine)
        return f", without what no trainer could do: {self.table.describe(spans)} of {self.table.dataset}"

    def _deal(self, now: float) -> None:
        """Give every free task to a live trainer, in turn; to none who should not try it now."""
        kept: deque[int] = deque()
        live = self._awake(now) or self.live
        for turn, task_id in enumerate(self.free):
            takers = [trainer for trainer in live if not self._barred(task_id, trainer)]
            if takers:
                self.hands.setdefault(takers[turn % len(takers)], deque()).append(task_id)
            else:
                kept.append(task_id)
        self.dealt = self.dealt or len(kept) < len(self.free)
        self.free = kept

    def _tell_pass(self, discarded: Sequence[int], seconds: float) -> None:
        records = self.table.records - sum(self._span(i).records for i in discarded)
        pace = f", {records / seconds:,.0f} records/s" if seconds > 0 else ""
        without = f", without {_counted(len(discarded), 'task')}" if discarded else ""
        text = (
            f"Pass {self.pass_id + 1} of {self.plan.passes} done in {seconds:.1f} s: "
            f"{_counted(records, 'record')}{pace}, {_counted(len(self.live), 'trainer')}{without}."
        )
        between = 0 < self.pass_id < self.plan.passes - 1
        self.happenings.append(Happening("pass", text, frequent=between and not discarded))

    def _share_with(self, newcomer: Trainer) -> None:
        """As many tasks as everybody has, so that nobody is waited for longer than need be."""
        hand = self.hands.setdefault(newcomer, deque())
        fair = sum(map(len, self.hands.values())) // len(self.live)
        while len(hand) < fair:
            longest = max(self.hands.values(), key=len)
            task_id = next((i for i in reversed(longest) if not self._barred(i, newcomer)), None)
            if longest is hand or task_id is None:
                break
            longest.remove(task_id)
            hand.appendleft(task_id)
        self.dealt = True

    def _tell(self, kind: str, text: str, notable: bool = False) -> None:
        self.happenings.append(Happening(kind, text, notable))


def fresh(entry: Entry) -> Entry:
    """A task's state at the beginning of a pass: counters at zero, the key of its last dispatch kept.

    The same again for a task that is fresh already.
    """
    finished = entry.trainer if entry.status in (Status.DONE, Status.TODO) else None
    return entry._replace(status=Status.TODO, trainer=finished, failures=0, blamed=())


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
