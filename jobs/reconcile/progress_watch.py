"""Periodic look at the progress of all running jobs. The decisions are those of ``jobs.lifecycle.progress``.

Signs are kept in memory: a process that takes over reads the newest points again and counts the time without progress
from then on. What was reported is stored with the attempt, so each event is written once, also with several sweeps.

A pass of the sweep spends ``PORTION_SECONDS`` on it: a look at many jobs goes on in the next passes, and all of it is
judged at the time at which the jobs were read. Stacks are taken by other threads, for use in the next look.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db.models import F

from datasets.storage.base import KeyNotFound, StorageError
from jobs.backends import factory as backend_factory
from jobs.backends.base import AttemptRef
from jobs.builds import code_snapshots
from jobs.control import stack_groups
from jobs.frameworks.definitions import NOTEBOOK
from jobs.lifecycle.holds import Held
from jobs.lifecycle.pauses import Pause
from jobs.lifecycle.progress import diagnosis, stalls, stragglers
from jobs.lifecycle.progress.diagnosis import Diagnosis, Facts
from jobs.lifecycle.progress.reported import Reported
from jobs.lifecycle.progress.signs import Measure, Point, Signs
from jobs.lifecycle.progress.stacks import Frame, ReplicaStack, Thread
from jobs.lifecycle.replica_facts import RESTARTS
from jobs.lifecycle.states import JobState, ReplicaState
from jobs.lifecycle.wording import in_words
from jobs.messages import control as control_messages
from jobs.messages import stalls as messages
from jobs.models import Attempt, Job, Replica
from jobs.models.streams import StreamHead, StreamKind
from jobs.reconcile.reconciler import reconcile
from jobs.reconcile.stalls import PROGRESS, STALLED, STRAGGLER, Entry, record
from jobs.spec import stall_actions
from jobs.spec.quantities import span
from jobs.streams import store
from portal.common.monitoring import heartbeat
from portal.common.outages import is_lost
from runtime import contract
from runtime.messages import Template

_log = logging.getLogger(__name__)

EVERY: Final = timedelta(seconds=5)
# Points that a new process reads of each job: those of the last windows.
TAIL: Final = 2000
# After this time without a heartbeat, points may be on their way too.
HEARD_WITHIN: Final = timedelta(seconds=1.5 * contract.HEARTBEAT_LIMIT_SECONDS)
# CPU time of one pass.
PORTION_SECONDS: Final = 0.1
# After this time without a pass, or if the clock went back, all signs are read again: entries may be on their way.
AWAY: Final = timedelta(seconds=60)
# Jobs whose stacks are taken at the same time. It can last seconds.
DIAGNOSES: Final = 4
# Interval at which the trainers of a job are compared: their windows take longer to change.
COMPARE_SECONDS: Final = 15.0

TakeStacks = Callable[[AttemptRef, Sequence[str]], tuple[Sequence[stack_groups.ReplicaStacks], float]]

_STALLED: Mapping[Measure, Template] = {
    Measure.STEPS: messages.STALLED_STEPS,
    Measure.POINTS: messages.STALLED_POINTS,
    Measure.LINES: messages.STALLED_LINES,
}
_PARTS: Mapping[str, Template] = {
    contract.STEP_READ: messages.READING,
    contract.STEP_COMPUTE: messages.COMPUTING,
    contract.STEP_PUSH: messages.PUSHING,
}


class _ReplicaRow(NamedTuple):
    name: str
    start_number: int
    restarts: int
    heartbeat: datetime | None
    held: Mapping[str, Any] | None


@dataclass(frozen=True)
class _Row:
    """A running attempt as read in one look."""

    job: UUID
    attempt: UUID
    number: int
    revision: int
    on_stall: str | None
    timeout: str | None
    namespace: str
    reported: Reported
    replicas: tuple[_ReplicaRow, ...]  # that run
    restarting: bool  # a server does not run: it is started again, or the attempt ends
    heads: Mapping[str, int]
    paused: bool

    def names(self) -> list[str]:
        return [replica.name for replica in self.replicas]

    def replica(self, name: str) -> _ReplicaRow | None:
        return next((one for one in self.replicas if one.name == name), None)

    def stall_timeout(self) -> float | None:
        return span(self.timeout).total_seconds() if self.timeout is not None else None

    def heard(self, now: datetime) -> bool:
        """Return whether the agents of all replicas were heard lately; a replica without an agent has no heartbeat."""
        return all(one.heartbeat is None or now - one.heartbeat < HEARD_WITHIN for one in self.replicas)

    def stands(self, now: datetime) -> bool:
        """Return whether the job is paused, or a program is held at its exception: the others may wait for it."""
        holds = (Held.from_json(one.held) for one in self.replicas)
        return self.paused or any(held.lasts(now) for held in holds if held is not None)

    def ref(self) -> AttemptRef:
        return AttemptRef(str(self.job), str(self.attempt), self.number, self.namespace)


class _Memory:
    """Signs of one attempt and the cursors behind the entries that they come from."""

    def __init__(self, row: _Row, now: float) -> None:
        self.attempt = row.attempt
        self.signs = Signs(since=now)
        self._points = max(0, row.heads.get(StreamKind.METRICS, 0) - TAIL)
        self._lines = row.heads.get(StreamKind.LOGS, 0)
        self._starts: dict[str, int] = {}
        self.stacks: Future[list[ReplicaStack]] | None = None  # while they are taken
        self.compared = 0.0  # when the trainers were last compared
        self.read(row, now)

    def read(self, row: _Row, now: float) -> bool:
        """Take what was appended since. Return whether it is progress."""
        moved = False
        for replica in row.replicas:
            if self._starts.setdefault(replica.name, replica.start_number) != replica.start_number:
                self._starts[replica.name] = replica.start_number
                self.signs.restart(replica.name, now)
        self.signs.keep_only(row.names())
        # A restored database has fewer entries; the agents send the others again.
        self._points = min(self._points, row.heads.get(StreamKind.METRICS, 0))
        self._lines = min(self._lines, row.heads.get(StreamKind.LOGS, 0))
        if (last := row.heads.get(StreamKind.METRICS, 0)) > self._points:
            moved = self.signs.note_points(_points(row, self._points, last), now)
            self._points = last
        if (last := row.heads.get(StreamKind.LOGS, 0)) > self._lines:
            moved = self.signs.note_lines(now) or moved
            self._lines = last
        return moved

    def forget_stacks(self) -> None:
        """Drop the stacks that are being taken."""
        if self.stacks is not None:
            self.stacks.cancel()
            self.stacks = None


class ProgressWatch:
    """The watch of one sweeping process.

    ``take`` takes the stacks of the named replicas of an attempt, in a thread of ``pool``. ``spent`` is a clock of the
    CPU time, in seconds.
    """

    def __init__(
        self, take: TakeStacks, pool: Executor | None = None, spent: Callable[[], float] = time.thread_time
    ) -> None:
        self._take = take
        self._pool = pool or ThreadPoolExecutor(DIAGNOSES, thread_name_prefix="stacks")
        self._spent = spent
        self._memories: dict[UUID, _Memory] = {}
        self._called: datetime | None = None  # the last pass
        self._looked: datetime | None = None  # when the rows of the present look were read
        self._left: deque[_Row] = deque()  # rows of the present look

    def when_due(self, now: datetime) -> None:
        """Go on with the present look, or begin one every ``EVERY``."""
        called, self._called = self._called, now
        if self._looked is None or called is None or not timedelta(0) <= now - called < AWAY:
            self._memories.clear()
            self._begin(now)
        elif not self._left and now - self._looked >= EVERY:
            self._begin(now)
        self._go_on(self._spent() + PORTION_SECONDS)

    def _begin(self, now: datetime) -> None:
        self._left = deque(_rows())
        self._looked = now
        for gone in self._memories.keys() - {row.job for row in self._left}:
            self._memories.pop(gone).forget_stacks()

    def _go_on(self, until: float) -> None:
        """Look at further jobs. A job that fails is logged and does not delay the others."""
        while self._left and self._looked is not None and self._spent() < until:
            row = self._left.popleft()
            heartbeat.OF_PROCESS.beat()
            try:
                self._look_at(row, self._looked)
            except Exception as error:
                if is_lost(error):
                    raise
                _log.exception("The progress of job %s could not be judged; the next look tries again.", row.job)

    def _look_at(self, row: _Row, now: datetime) -> None:
        at = now.timestamp()
        memory = self._memories.get(row.job)
        if memory is None or memory.attempt != row.attempt:
            self._memories[row.job] = memory = _Memory(row, at)
            moved = False  # what it has read may be older than the stall
        else:
            moved = memory.read(row, at)
        if _kill_again(row):
            return
        if row.reported.stall:
            _end_stall(row, moved, now)
            return
        if row.restarting or row.stands(now) or not row.heard(now):
            memory.signs.postpone(at)
        quiet = stalls.quiet_seconds(memory.signs, at, row.stall_timeout())
        if quiet is not None:
            stacks = self._stacks(row, memory)
            if stacks is not None:
                _begin_stall(row, memory.signs, quiet, now, stacks)
            return
        memory.forget_stacks()
        if not 0 <= at - memory.compared < COMPARE_SECONDS:
            memory.compared = at
            _note_straggler(row, memory.signs, now)

    def _stacks(self, row: _Row, memory: _Memory) -> list[ReplicaStack] | None:
        """Begin to take the stacks of the replicas; return them in a later look, once they are there."""
        if memory.stacks is None:
            if sum(one.stacks is not None for one in self._memories.values()) >= DIAGNOSES:
                return None
            memory.stacks = self._pool.submit(_stacks, row.ref(), row.names(), self._take)
        if not memory.stacks.done():
            return None
        taken, memory.stacks = memory.stacks, None
        return taken.result()


# --- Reading ---------------------------------------------------------------------------------------------------------
def _rows() -> list[_Row]:
    """Read all running jobs, in three queries."""
    running = Job.objects.filter(state=JobState.RUNNING, cancel_requested=None)
    # A notebook makes no progress while nobody uses it; ``jobs.notebooks.idle`` decides about it.
    running = running.exclude(spec__framework=NOTEBOOK)
    current = Attempt.objects.filter(job__in=running, number=F("job__attempt"))
    spec = ("job__spec__on_stall", "job__spec__stall_timeout")
    columns = ("job_id", "pk", "number", "job__revision", *spec, "job__namespace__name", "progress", "pause")
    found = list(current.values_list(*columns))
    if not found:
        return []
    replicas: dict[UUID, list[_ReplicaRow]] = defaultdict(list)
    restarting: set[UUID] = set()
    present = Replica.objects.filter(attempt__in=current, dismissed=False).order_by("pk")
    for attempt, role, state, *values in present.values_list("attempt_id", "role", "state", *_ReplicaRow._fields):
        if state == ReplicaState.REGISTERED:
            replicas[attempt].append(_ReplicaRow(*values))
        elif role != contract.TRAINER:
            restarting.add(attempt)
    heads: dict[UUID, dict[str, int]] = defaultdict(dict)
    for job, kind, last in StreamHead.objects.filter(job__in=running).values_list("job_id", "kind", "last"):
        heads[job][kind] = last
    return [
        _Row(
            *(job, pk, number, revision, on_stall, timeout, namespace),
            *(Reported.from_json(progress), tuple(replicas[pk]), pk in restarting, heads[job]),
            paused=(stored := Pause.from_json(pause)) is not None and (stored.on or not stored.done),
        )
        for job, pk, number, revision, on_stall, timeout, namespace, progress, pause in found
    ]


def _points(row: _Row, after: int, upto: int) -> Iterable[Point]:
    """Yield the points of the attempt after a number: those of the runtime, and one of each writer's others.

    Most blocks are small: loops take a fraction of the time of operations on arrays.
    """
    for lo, points in store.read_point_columns(row.job, after=after, upto=upto):
        new = points.skip(max(0, after + 1 - lo))
        after = max(after, lo + len(points) - 1)
        reserved = {
            index: sys.intern(key) for index, key in enumerate(new.keys) if key.startswith(contract.STEP_METRICS)
        }
        replicas = [writer.replica if writer.attempt == row.number else "" for writer in new.sources]
        others: set[str] = set()
        for key, source, value in zip(new.key.tolist(), new.source.tolist(), new.values.tolist(), strict=True):
            if not replicas[source]:
                continue
            if key in reserved:
                yield Point(replicas[source], reserved[key], value)
            else:
                others.add(replicas[source])
        for replica in others:
            yield Point(replica, _USERS, 0.0)


# Any name that is not reserved.
_USERS: Final = "metric"


# --- Stalls ----------------------------------------------------------------------------------------------------------
def _begin_stall(row: _Row, signs: Signs, quiet: float, now: datetime, stacks: Sequence[ReplicaStack]) -> None:
    facts = Facts(now.timestamp(), source=_source_of(row.job))
    found = diagnosis.diagnose(stacks, signs.trainers, row.names(), facts)
    template = _STALLED[signs.measure or Measure.LINES]
    text: str = template(length=in_words(timedelta(seconds=round(quiet))), diagnosis=found.text)
    victim = _victim(row, found)
    if row.on_stall == stall_actions.RESTART and victim is None:
        text = messages.RESTART_IMPOSSIBLE(text=text)
    after = replace(row.reported, stall=text, since=now.timestamp() - quiet)
    if victim is not None:
        after = replace(after, restart=victim.name, start=victim.start_number)
    if record(row.job, row.attempt, row.revision, after, Entry(STALLED, text, found.replica), now):
        if victim is not None:
            _kill(row, victim.name)
        reconcile(row.job)


def _stacks(ref: AttemptRef, names: Sequence[str], take: TakeStacks) -> list[ReplicaStack]:
    """Take the stacks of the replicas. One that could not be asked is left out: its steps say something too."""
    if not names:
        return []
    return [
        ReplicaStack(
            one.replica,
            one.state,
            tuple(
                Thread(
                    thread.name,
                    thread.native,
                    tuple(Frame(*vars(each).values()) for each in thread.frames),
                    thread.process,
                )
                for thread in one.threads
            ),
            one.full,
        )
        for one in take(ref, names)[0]
        if one.state == stack_groups.RUNNING or getattr(one.note, "code", "") in _ANSWERS
    ]


# Codes of the remarks of agents, which have looked; others say why an agent could not be asked.
_ANSWERS: Final = frozenset(template.code for template in stack_groups.NOTES.values()) - {
    control_messages.PROCESS_NOT_PYTHON.code
}


def _source_of(job: UUID) -> Callable[[str, int], str]:
    """Return a function that finds a line of the job's own files, by the end of the file's path."""
    snapshot = Job.objects.select_related("snapshot").get(pk=job).snapshot
    try:
        files = {name: text.splitlines() for name, text in code_snapshots.files_of(snapshot).items()}
    except (KeyNotFound, StorageError):
        files = {}

    def line_of(path: str, line: int) -> str:
        lines = next((lines for name, lines in files.items() if path.endswith(f"/{name}") or path == name), [])
        return lines[line - 1] if 0 < line <= len(lines) else ""

    return line_of


def _victim(row: _Row, found: Diagnosis) -> _ReplicaRow | None:
    """Return the replica to be started again; None if it is not to be, or has no restarts left."""
    if row.on_stall != stall_actions.RESTART:
        return None
    replica = row.replica(found.replica)
    if replica is None or replica.restarts >= RESTARTS[replica.name.rpartition("-")[0]]:
        return None
    return replica


def _kill_again(row: _Row) -> bool:
    """End the start that a stall has condemned, if the process that decided it has not. Return whether it runs."""
    name, reported = row.reported.restart, row.reported
    replica = row.replica(name) if name else None
    if replica is None or replica.start_number != reported.start:
        return False
    _kill(row, name)
    return True


def _kill(row: _Row, name: str) -> None:
    """End a process as a failure would. The reconciler starts the replica again, as often as it may."""
    backend_factory.current().kill(row.ref(), name)


def _end_stall(row: _Row, moved: bool, now: datetime) -> None:
    """End a stall that is over: the job progressed, or the replica that caused it was started again."""
    reported = row.reported
    replica = row.replica(reported.restart) if reported.restart else None
    if moved:
        length = in_words(timedelta(seconds=round(now.timestamp() - reported.since)))
        entry = Entry(PROGRESS, messages.PROGRESS_AGAIN(length=length))
    elif replica is not None and replica.start_number > reported.start:
        entry = None  # the restart has an event of its own
    else:
        return
    if record(row.job, row.attempt, row.revision, reported.moved(), entry, now):
        reconcile(row.job)


# --- Stragglers ------------------------------------------------------------------------------------------------------
def _note_straggler(row: _Row, signs: Signs, now: datetime) -> None:
    present = row.reported.straggler
    found = stragglers.find(list(signs.trainers.values()), present)
    name = found.name if found is not None else ""
    if name == present:
        return
    if found is not None:
        text: str = messages.STRAGGLER(replica=name, ratio=f"{found.ratio:.1f}", part=_PARTS[found.part]())
    else:
        text = messages.STRAGGLER_OVER(replica=present)
    entry = Entry(STRAGGLER, text, name or present)
    record(row.job, row.attempt, row.revision, replace(row.reported, straggler=name), entry, now)
