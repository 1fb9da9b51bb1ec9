"""The queue's state in the coordination store: a static table written once, a head, and a few bytes per task.

Every commit writes the head and the tasks that changed in one transaction, which compares the head's revision and, if
the master is registered, the incarnation of its registration. So a master that has been replaced cannot commit, and one
that missed a commit reads again instead of overwriting. A new pass costs the head alone: what is stored of a task of an
earlier pass counts as todo.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import count
from typing import Any

from runtime.coordination.base import Compare, Conflict, CoordinationStore, Operation, Put
from runtime.errors import Lost, RegattaError, UsageError
from runtime.master.messages import Trainer
from runtime.master.queue import Entry, Saved, Saver, Status, TaskQueue
from runtime.master.table import TaskTable

# Half of what etcd takes as one request by default, with room for base64.
_PART_BYTES = 512 * 1024


class Behind(RegattaError):
    """The stored state is newer than ours; read it again."""


class Ledger:
    """Reads and commits one attempt's queue below ``prefix``.

    ``owner`` compares the registration that makes this process the master; None where nobody else can be.
    """

    def __init__(self, store: CoordinationStore, prefix: str, owner: Compare | None = None) -> None:
        self._store = store
        self._prefix = f"{prefix}master/"
        self._head = f"{self._prefix}head"
        self._owner = [owner] if owner else []
        self._revision = 0
        self._last: dict[str, Any] | None = None

    def load(self, table: TaskTable) -> Saved | None:
        """The committed state, None for a fresh job. Raises UsageError if it is of another data set."""
        stored = {entry.key: entry for entry in self._store.list(self._prefix).entries}
        head = stored.get(self._head)
        if head is None:
            return None
        self._revision = head.mod_revision
        self._last = json.loads(head.value)
        self._check(table, [entry.value for key, entry in stored.items() if key.startswith(f"{self._prefix}table/")])
        values = (stored.get(self._task_key(task)) for task in range(len(table.tasks)))
        entries = [_entry_from_json(json.loads(value.value)) if value else Entry() for value in values]
        saver = self._last["saver"]
        return Saved(
            self._last["pass"],
            entries,
            self._last["failed"],
            Saver(Trainer(saver[0], saver[1]), 0.0, saver[2]) if saver else None,
        )

    def commit(self, queue: TaskQueue) -> None:
        """Write what ``queue`` changed since the last commit. Nothing is written when nothing did.

        Raises Lost if this process is not the master any more, Behind if the stored state is newer, StoreUnavailable
        if it is not known whether the commit happened.
        """
        head = _head_to_json(queue)
        if head == self._last and not queue.changed:
            return
        operations: list[Operation] = [Put(self._head, _bytes(head))]
        operations += [Put(self._task_key(i), _bytes(_entry_to_json(queue.entries[i]))) for i in sorted(queue.changed)]
        if self._last is None:
            operations += self._table(queue.table)
        compares = [*self._owner, Compare(self._head, mod_revision=self._revision)]
        answer = self._store.txn(compares, operations)
        if isinstance(answer, Conflict):
            raise self._refused(answer)
        self._revision, self._last = answer.revision, head

    def _refused(self, conflict: Conflict) -> RegattaError:
        if conflict.key == self._head:
            return Behind("The state in the coordination store is newer than this master's; it has to be read again.")
        return Lost("This master has been replaced by another; it must not hand out tasks any more.")

    def _task_key(self, task_id: int) -> str:
        return f"{self._prefix}task/{task_id}"

    def _table(self, table: TaskTable) -> list[Operation]:
        body = _bytes(table.to_json())
        parts = (body[begin : begin + _PART_BYTES] for begin in range(0, len(body), _PART_BYTES))
        return [Put(f"{self._prefix}table/{number:06d}", part) for number, part in zip(count(), parts, strict=False)]

    def _check(self, table: TaskTable, parts: Sequence[bytes]) -> None:
        stored = TaskTable.from_json(json.loads(b"".join(parts)))
        if stored != table:
            raise UsageError(
                f"This attempt has begun with {_summary(stored)} and cannot go on with {_summary(table)}. "
                "Restore the data set, or start the job again."
            )


def _summary(table: TaskTable) -> str:
    return f"{table.dataset} ({table.records} records in {len(table.tasks)} tasks)"


def _head_to_json(queue: TaskQueue) -> dict[str, Any]:
    saver = queue.saver
    holder = [saver.trainer.index, saver.trainer.incarnation, saver.seconds] if saver else None
    return {"pass": queue.pass_id, "failed": queue.failed, "saver": holder}


def _entry_to_json(entry: Entry) -> list[Any]:
    trainer = [entry.trainer.index, entry.trainer.incarnation] if entry.trainer else None
    key = [int(entry.status), entry.pass_id, entry.epoch, trainer, entry.request]
    return [*key, entry.failures, entry.blamed, entry.failures_ever]


def _entry_from_json(fields: Sequence[Any]) -> Entry:
    status, pass_id, epoch, trainer, request, failures, blamed, failures_ever = fields
    holder = Trainer(*trainer) if trainer else None
    return Entry(Status(status), pass_id, epoch, holder, request, failures, tuple(blamed), failures_ever)


def _bytes(body: Any) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()
