"""Invariants of the task queue for all tests that drive it, and a store for its ledger."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.coordination.base import Committed, Compare, Conflict, Listing, Put, Versioned
from runtime.master.messages import Task, Trainer
from runtime.master.queue.prefetch import MOST_AHEAD
from runtime.master.queue.task_queue import TaskQueue
from runtime.master.types import NO_TIMER, Key, Status


class MemoryStore:
    """The part of a coordination store that the ledger needs, in a dict."""

    def __init__(self) -> None:
        self.entries: dict[str, Versioned] = {}
        self.revision = 0

    def list(self, prefix: str) -> Listing:
        found = tuple(entry for key, entry in sorted(self.entries.items()) if key.startswith(prefix))
        return Listing(found, self.revision)

    def txn(self, compares: Sequence[Compare], operations: Sequence[Put]) -> Committed | Conflict:
        for compare in compares:
            if not compare.holds(self.entries.get(compare.key)):
                return Conflict(compare.key, self.entries.get(compare.key))
        self.revision += 1
        for put in operations:
            self.entries[put.key] = Versioned(put.key, put.value, self.revision, self.revision)
        return Committed(self.revision)


class QueueRules:
    """I3 to I5: receives what the queue hands out and acknowledges, and checks the queue after every change."""

    def __init__(self) -> None:
        self._holders: dict[tuple[int, int, int], Trainer] = {}
        self._epochs: dict[int, int] = {}
        self._acknowledged: set[tuple[int, int]] = set()

    def given(self, trainer: Trainer, task: Task) -> None:
        """A trainer was given a task, or the same again for the same request."""
        name = (task.pass_id, task.task_id, task.epoch)
        if name in self._holders:
            assert self._holders[name] == trainer, "I3: two have one dispatch"
            return
        assert task.epoch > self._epochs.get(task.task_id, 0), "I3: epochs of a task rise"
        assert name[:2] not in self._acknowledged, "I5: what was finished is given again"
        self._holders[name], self._epochs[task.task_id] = trainer, task.epoch

    def acknowledged(self, key: Key) -> None:
        """A finish was answered with OK."""
        self._acknowledged.add((key.pass_id, key.task_id))

    def check(self, queue: TaskQueue) -> None:
        """Check the queue's own state."""
        if queue.open:
            _every_task_is_in_exactly_one_place(queue)
            _pieces_and_tasks_cover_every_record_once(queue)
            done = {(queue.pass_id, i) for i, entry in enumerate(queue.entries) if entry.status is Status.DONE}
            assert {name for name in self._acknowledged if name[0] == queue.pass_id} == done, "I5: what is done"


def _every_task_is_in_exactly_one_place(queue: TaskQueue) -> None:
    """I4: a pass is over when nothing is todo or pending, and not before."""
    queued = [*queue.assigner.free, *(task for hand in queue.assigner.hands.values() for task in hand)]
    todo = [i for i, entry in enumerate(queue.entries) if entry.status is Status.TODO]
    pending = {i for i, entry in enumerate(queue.entries) if entry.status is Status.PENDING}
    assert sorted(queued) == todo
    assert queue.board.pending == pending
    assert todo or pending, "the pass should have ended"
    assert all(set(queue.entries[i].holders) <= set(queue.live) for i in pending)
    assert all(entry.rival is None for entry in queue.entries if entry.status is not Status.PENDING)
    assert not (queue.plan.sync and any(entry.rival for entry in queue.entries))
    _none_waits_for_ever_behind_another(queue)


def _none_waits_for_ever_behind_another(queue: TaskQueue) -> None:
    """A prefetched task has no deadline, so its trainer has another that has one; and not too many of these."""
    pending = {i: queue.entries[i] for i in sorted(queue.board.pending)}
    busy = {holder for entry in pending.values() if entry.timer != NO_TIMER for holder in entry.holders}
    assert all(entry.prefetched and entry.trainer in busy for entry in pending.values() if entry.timer == NO_TIMER)
    for trainer in queue.live:
        ahead = [(-entry.request, i) for i, entry in pending.items() if entry.prefetched and entry.trainer == trainer]
        assert queue.board.by_trainer.held[trainer] == sorted(ahead)
        assert len(ahead) <= (MOST_AHEAD if queue.plan.prefetch else 0)
        hand = {i for i, entry in pending.items() if entry.timer != NO_TIMER and trainer in entry.holders}
        assert queue.board.by_trainer.in_hand[trainer] == hand


def _pieces_and_tasks_cover_every_record_once(queue: TaskQueue) -> None:
    whole = [i for i, entry in enumerate(queue.entries) if entry.status is not Status.SPLIT]
    records = [(span.task_id, record) for i in whole for span in [queue.board.span(i)] for record in range(*span[1:])]
    every = {(i, record) for i in range(len(queue.table.tasks)) for record in range(queue.table.records_of(i))}
    assert len(records) == len(set(records))
    assert every - set(records) <= set(queue.board.quarantine)
