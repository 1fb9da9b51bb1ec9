"""The queue's state in the coordination store: a static table, a head, the assignment, and a few bytes per task.

The table is written once. The states of the tasks are kept in pages, several tasks to a key: consecutive tasks are
handed out together, and a store takes one key of a kilobyte faster than twenty of a few bytes.

Every commit writes the head and the changes in one transaction. It compares the head's revision and, if the master is
registered, the registration and the leadership. So a replaced master cannot commit, and one that missed a commit reads
again instead of overwriting. A new pass costs only the head and the assignment: a task state of an earlier pass counts
as todo, and a hand of every second task is stored as three numbers. No commit is larger than 100 KB for 10,000 tasks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from runtime.coordination.base import Compare, Conflict, CoordinationStore, Operation, Put
from runtime.errors import Lost, RegattaError, UsageError
from runtime.master.messages import Trainer
from runtime.master.task_table import Span, TaskTable
from runtime.master.types import NO_TIMER, Assignment, Bad, Changes, Entry, Head, Rival, Saved, Saver, Status, Timer
from runtime.messages import from_json, paragraph, to_json
from runtime.messages import training as messages
from runtime.protocol.run_length import from_runs, to_runs

# The static table is written in transactions of this size before the first head.
_PART_BYTES = 96 * 1024
# Tasks per page.
_PAGE = 16


class Behind(RegattaError):
    """The stored state is newer than the one in memory; read it again."""


class Ledger:
    """Reads and commits one attempt's queue below ``prefix``.

    ``owner`` is the compare operations that prove that this process is the master; empty if no other process can be.
    """

    def __init__(self, store: CoordinationStore, prefix: str, owner: Sequence[Compare] = ()) -> None:
        self._store = store
        self._prefix = f"{prefix}master/"
        self._head = f"{self._prefix}head"
        self._owner = tuple(owner)
        self._revision = 0
        self._last: Head | None = None
        self._written: dict[int, bytes] = {}  # tasks as they are in the store

    def load(self, table: TaskTable) -> Saved | None:
        """Return the committed state, or None for a new job. Raises UsageError if it is of another dataset."""
        stored = {entry.key: entry for entry in self._store.list(self._prefix).entries}
        head = stored.get(self._head)
        if head is None:
            return None
        self._revision = head.mod_revision
        self._last = _head_from_json(json.loads(head.value))
        self._check(table, [entry.value for key, entry in stored.items() if key.startswith(f"{self._prefix}table/")])
        pages = {key: json.loads(one.value) for key, one in stored.items() if key.startswith(f"{self._prefix}tasks/")}
        entries = self._entries(table, pages)
        assignment = stored.get(f"{self._prefix}deal")
        bad = stored.get(f"{self._prefix}quarantine")
        return Saved(
            self._last,
            entries,
            _assignment_from_json(json.loads(assignment.value)) if assignment else Assignment(),
            tuple(Bad(*fields[:2]) for fields in json.loads(bad.value)["records"]) if bad else (),
        )

    def _entries(self, table: TaskTable, pages: Mapping[str, Sequence[Any]]) -> list[Entry]:
        """The entries of all tasks and pieces. Tasks of a page that was never written have their initial state."""
        self._written = {}
        entries = [Entry() for _ in table.tasks]
        for key in sorted(pages):
            begin = int(key.rpartition("/")[2]) * _PAGE
            entries += [Entry()] * (begin - len(entries))
            entries[begin : begin + _PAGE] = map(_entry_from_json, pages[key])
        return entries

    def commit(self, changes: Changes, entries: Sequence[Entry], table: TaskTable) -> None:
        """Write ``changes``; ``entries`` holds the state of their tasks. Writes nothing if nothing changed.

        Raises Lost if this process is no longer the master, Behind if the stored state is newer, and StoreUnavailable
        if it is not known whether the commit happened.
        """
        head = changes.head
        if self._last and head == self._last._replace(at=head.at) and not changes.tasks and changes.assignment is None:
            return
        if self._last is None:
            self._write_table(table)
        operations: list[Operation] = [Put(self._head, _bytes(_head_to_json(head)))]
        operations += self._pages(changes.tasks, entries)
        if changes.assignment is not None:
            operations.append(Put(f"{self._prefix}deal", _bytes(_assignment_to_json(changes.assignment))))
        if changes.quarantine is not None:
            operations.append(Put(f"{self._prefix}quarantine", _bytes(_quarantine_to_json(changes.quarantine, table))))
        self._revision = self._write([Compare(self._head, mod_revision=self._revision)], operations)
        self._last = head

    def _write(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> int:
        answer = self._store.txn([*self._owner, *compares], operations)
        if not isinstance(answer, Conflict):
            return answer.revision
        if answer.key == self._head:
            raise Behind(messages.MASTER_STATE_STALE())
        raise Lost(messages.MASTER_REPLACED())

    def _pages(self, tasks: Sequence[int], entries: Sequence[Entry]) -> list[Operation]:
        """The pages that hold the tasks."""
        written = self._written
        for task_id in tasks:
            written[task_id] = _entry_to_bytes(entries[task_id])
        return [
            Put(f"{self._prefix}tasks/{page:06d}", self._page(page, entries)) for page in {i // _PAGE for i in tasks}
        ]

    def _page(self, page: int, entries: Sequence[Entry]) -> bytes:
        written = self._written
        tasks = range(page * _PAGE, min(len(entries), (page + 1) * _PAGE))
        for task_id in tasks:
            if task_id not in written:
                written[task_id] = _entry_to_bytes(entries[task_id])
        return b"[%s]" % b",".join([written[task_id] for task_id in tasks])

    def _write_table(self, table: TaskTable) -> None:
        body = _bytes(table.to_json())
        parts = (body[begin : begin + _PART_BYTES] for begin in range(0, len(body), _PART_BYTES))
        for number, part in zip(count(), parts, strict=False):
            fresh = Compare(self._head, mod_revision=0)
            self._write([fresh], [Put(f"{self._prefix}table/{number:06d}", part)])

    def _check(self, table: TaskTable, parts: Sequence[bytes]) -> None:
        stored = TaskTable.from_json(json.loads(b"".join(parts)))
        if stored != table:
            raise UsageError(
                paragraph(
                    messages.ATTEMPT_DATASET_CHANGED(before=_summary(stored), now=_summary(table)),
                    messages.RESTORE_DATASET_OR_RERUN(),
                )
            )


def lead(store: CoordinationStore, prefix: str, mine: Compare) -> tuple[Compare, ...]:
    """Become the only master that commits; return what every commit has to compare.

    ``mine`` holds while this process is registered. The previous leader cannot commit from now on. Raises Lost if the
    registration is gone or another process became the master at the same time.
    """
    key = f"{prefix}master/leader"
    before = store.get(key)
    seen = Compare(key, mod_revision=before.mod_revision if before else 0)
    answer = store.txn([mine, seen], [Put(key, mine.key.encode())])
    if isinstance(answer, Conflict):
        raise Lost(messages.MASTER_ROLE_TAKEN())
    return (mine, Compare(key, mod_revision=answer.revision))


def _summary(table: TaskTable) -> str:
    return f"{table.dataset} ({table.records} records in {len(table.tasks)} tasks)"


# --- JSON ------------------------------------------------------------------------------------------------------------
def _head_to_json(head: Head) -> dict[str, Any]:
    saver = head.saver
    holder = [*_trainer_to_json(saver.trainer), saver.deadline] if saver else None
    return {"at": head.at, "pass": head.pass_id, "failed": to_json(head.failed), "saver": holder, "usual": head.usual}


def _head_from_json(body: dict[str, Any]) -> Head:
    saver = body["saver"]
    holder = Saver(Trainer(saver[0], saver[1]), saver[2]) if saver else None
    return Head(body["at"], body["pass"], from_json(body["failed"]), holder, body["usual"])


def _assignment_to_json(assignment: Assignment) -> dict[str, Any]:
    hands = [[*_trainer_to_json(trainer), to_runs(hand)] for trainer, hand in assignment.hands]
    live = [_trainer_to_json(trainer) for trainer in assignment.live]
    return {"live": live, "free": to_runs(assignment.free), "hands": hands, "parts": assignment.parts}


def _assignment_from_json(body: dict[str, Any]) -> Assignment:
    hands = tuple((Trainer(index, incarnation), from_runs(runs)) for index, incarnation, runs in body["hands"])
    parts = tuple(Span(*part) for part in body["parts"])
    return Assignment(tuple(Trainer(*trainer) for trainer in body["live"]), from_runs(body["free"]), hands, parts)


def _quarantine_to_json(quarantine: Sequence[Bad], table: TaskTable) -> dict[str, Any]:
    """With a readable name of each record."""
    records = [[*bad, table.describe([Span(bad.task_id, bad.record, bad.record + 1)])] for bad in quarantine]
    return {"dataset": table.dataset, "records": records}


def _trainer_to_json(trainer: Trainer) -> list[int]:
    return [trainer.index, trainer.incarnation]


def _entry_to_bytes(entry: Entry) -> bytes:
    """Formatted without the JSON encoder, because this is most of a commit's cost."""
    trainer = f"[{entry.trainer.index},{entry.trainer.incarnation}]" if entry.trainer else "null"
    blamed = ",".join(map(str, entry.blamed))
    begun, deadline = entry.timer
    seldom = f",{entry.latest},{_rival_to_json(entry.rival)},{entry.contained}"
    more = seldom if entry.latest or entry.contained else ""
    return (
        f"[{entry.status:d},{entry.pass_id},{entry.epoch},{trainer},{entry.request},"
        f"{entry.failures},[{blamed}],{entry.failures_ever},{begun!r},{deadline!r}{more}]"
    ).encode()


def _entry_from_json(fields: Sequence[Any]) -> Entry:
    status, pass_id, epoch, trainer, request, failures, blamed, failures_ever, begun, deadline, *seldom = fields
    holder = Trainer(*trainer) if trainer else None
    timer = Timer(begun, deadline) if deadline else NO_TIMER
    latest, rival, contained = seldom or (0, None, 0)
    blame = failures, tuple(blamed), failures_ever
    entry = Entry(Status(status), pass_id, epoch, holder, request, *blame, timer)
    return entry._replace(latest=latest, rival=_rival_from_json(rival), contained=contained) if seldom else entry


def _rival_to_json(rival: Rival | None) -> str:
    if rival is None:
        return "null"
    return json.dumps([*_trainer_to_json(rival.trainer), rival.epoch, rival.request, *rival.timer])


def _rival_from_json(fields: Sequence[Any] | None) -> Rival | None:
    if fields is None:
        return None
    index, incarnation, epoch, request, begun, deadline = fields
    return Rival(Trainer(index, incarnation), epoch, request, Timer(begun, deadline))


_ENCODER = json.JSONEncoder(separators=(",", ":"))


def _bytes(body: Any) -> bytes:
    return _ENCODER.encode(body).encode()
