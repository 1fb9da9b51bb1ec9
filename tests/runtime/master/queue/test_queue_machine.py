"""The task queue under any order of events, including crashes of the master: the design's invariants hold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from runtime.master.messages import JobDone, PassEnd, Task, Trainer, Unread, Wait
from runtime.master.queue.task_queue import TaskQueue
from runtime.master.queue_store import Ledger
from runtime.master.types import Key, Plan, Verdict
from runtime.messages import training as messages
from tests.messages import mentions
from tests.properties import examples
from tests.runtime.master.queue.test_task_queue import table_of
from tests.runtime.master.queue_rules import MemoryStore, QueueRules

INDICES = st.integers(0, 2)
PASSES = 3


class QueueMachine(RuleBasedStateMachine):
    """Trainers come, go, work, fail and report late; the master crashes after or before a commit."""

    @initialize(
        tasks=st.integers(1, 5), sync=st.booleans(), cap=st.integers(0, 3), options=st.tuples(*[st.booleans()] * 2)
    )
    def begin(self, tasks: int, sync: bool, cap: int, options: tuple[bool, bool]) -> None:
        self.now = 0.0
        quarantine, prefetch = options
        self.plan = Plan(PASSES, sync, trainers=1, failure_cap=cap, quarantine=quarantine, prefetch=prefetch)
        self.table = table_of(tasks)
        self.store = MemoryStore()
        self.ledger = Ledger(self.store, "/j/")
        self.queue = TaskQueue.begin(self.plan, self.table, self.now)
        self.commit()
        self.incarnations = 0
        self.live: dict[int, Trainer] = {}
        self.ended: dict[Trainer, int | None] = {}
        self.requests: dict[Trainer, int] = {}
        self.rules = QueueRules()
        self.given: list[Key] = []

    def commit(self) -> None:
        self.ledger.commit(self.queue.take(self.now), self.queue.entries, self.table)

    def recovered(self) -> TaskQueue:
        self.ledger = Ledger(self.store, "/j/")
        return TaskQueue.resume(self.plan, self.table, self.ledger.load(self.table))

    @contextmanager
    def change(self) -> Iterator[TaskQueue]:
        before = self.queue.pass_id
        yield self.queue
        for pass_id in range(max(before, 0), min(self.queue.pass_id, PASSES)):
            self.check_pass_was_whole(pass_id)
        self.commit()

    def check_pass_was_whole(self, pass_id: int) -> None:
        """I4: at its end a pass has nothing todo or pending; tasks that were not discarded were acknowledged."""
        texts = [happening.text for happening in self.queue.happenings]
        assert any(f"Pass {pass_id + 1} of" in text and mentions(text, messages.PASS_DONE_DETAILS) for text in texts)

    @rule(index=INDICES)
    def join(self, index: int) -> None:
        self.incarnations += 1
        trainer = Trainer(index, self.incarnations)
        self.live[index] = trainer
        self.ended[trainer], self.requests[trainer] = None, 0
        self.change_members()

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def crash_a_trainer(self, data: st.DataObject) -> None:
        self.live.pop(data.draw(st.sampled_from(sorted(self.live))))
        self.change_members()

    def change_members(self) -> None:
        with self.change() as queue:
            queue.members(list(self.live.values()), self.now)

    @precondition(lambda self: self.live and not self.queue.failed)
    @rule(data=st.data(), lost_reply=st.booleans())
    def get(self, data: st.DataObject, lost_reply: bool) -> None:
        trainer = self.live[data.draw(st.sampled_from(sorted(self.live)))]
        request = self.requests[trainer] + 1
        with self.change() as queue:
            answer = queue.get(trainer, request, self.ended[trainer], self.now)
        if lost_reply:
            assert self.recovered().get(trainer, request, self.ended[trainer], self.now) == answer  # M10
        self.requests[trainer] = request
        if isinstance(answer, Task):
            self.take(trainer, answer)
        elif isinstance(answer, PassEnd):
            assert answer.pass_id <= self.queue.pass_id
            self.ended[trainer] = answer.pass_id
        elif isinstance(answer, JobDone):
            assert self.queue.finished

    @precondition(lambda self: self.live and not self.queue.failed)
    @rule(data=st.data(), lost_reply=st.booleans())
    def ask_what_is_next(self, data: st.DataObject, lost_reply: bool) -> None:
        trainer = self.live[data.draw(st.sampled_from(sorted(self.live)))]
        with self.change() as queue:
            ahead = queue.ahead(trainer, self.now)
        if lost_reply:
            assert self.recovered().ahead(trainer, self.now) == ahead
        for task in ahead.tasks:
            self.take(trainer, task)
        assert ahead.ended in (None, self.queue.pass_id)

    def take(self, trainer: Trainer, task: Task) -> None:
        self.rules.given(trainer, task)
        self.ended[trainer] = task.pass_id - 1
        self.given.append(Key(task.pass_id, task.task_id, task.epoch, trainer))
        for other in task.prefetched:
            self.take(trainer, other)

    @precondition(lambda self: self.given)
    @rule(
        data=st.data(),
        verb=st.sampled_from(["done", "done", "done", "begun", "begun", "fail", "cannot_read", "release", "extend"]),
        place=st.none() | st.tuples(st.integers(0, 9), st.integers(1, 10)),
    )
    def report(self, data: st.DataObject, verb: str, place: tuple[int, int] | None) -> None:
        """Report on any dispatch ever made: in time, late or twice."""
        key = data.draw(st.sampled_from(self.given[-12:]))
        before = list(self.queue.entries)
        with self.change() as queue:
            verdict = self.reported(queue, verb, key, place)
        if verb == "done" and verdict is Verdict.OK:
            self.rules.acknowledged(key)
        if verdict is Verdict.STALE:
            assert self.queue.entries == before

    def reported(self, queue: TaskQueue, verb: str, key: Key, place: tuple[int, int] | None) -> Verdict:
        if verb == "fail":
            return queue.fail(key, "it raised", self.now, place)
        if verb == "cannot_read":
            return queue.cannot_read(key, "it is gone.", Unread.FAIL_JOB if place else Unread.LEAVE_OUT, self.now)
        return getattr(queue, verb)(key, self.now)

    @rule(seconds=st.sampled_from([1.0, 30.0, 61.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        with self.change() as queue:
            queue.tick(self.now)

    @rule(members=st.booleans())
    def the_commit_fails(self, members: bool) -> None:
        """An uncommitted change has not happened."""
        before = (list(self.queue.entries), self.queue.pass_id, self.queue.assigner.assignment())
        self.queue.members([], self.now) if members else self.queue.tick(self.now + 1000.0)
        self.queue = self.recovered()
        assert self.queue.finished or self.queue.entries == before[0]  # no tasks are requested once the job is over
        assert self.queue.pass_id == before[1]
        assert not self.queue.open or self.queue.assigner.assignment() == before[2]

    @rule()
    def the_master_crashes_and_recovers(self) -> None:
        """I5: what was acknowledged is kept, as are hands and deadlines; I3 and I4 still hold."""
        before = self.queue
        self.queue = self.recovered()
        assert before.finished or self.queue.entries == before.entries
        assert not before.open or self.queue.assigner.assignment() == before.assigner.assignment()
        assert (self.queue.saver, self.queue.failed, self.queue.board.pending) == (
            before.saver,
            before.failed,
            before.board.pending,
        )
        self.change_members()

    @invariant()
    def the_rules_hold(self) -> None:
        self.rules.check(self.queue)

    def teardown(self) -> None:
        """I6: with one working trainer the job completes."""
        if not hasattr(self, "queue"):
            return
        worker = Trainer(9, self.incarnations + 1)
        self.queue.members([worker], self.now)
        if self.queue.failed:  # the crash of the others was the last failure allowed for the tasks
            return
        ended: int | None = None
        for request in range(1, 2000):
            answer = self.queue.get(worker, request, ended, self.now)
            if isinstance(answer, JobDone):
                return
            assert not isinstance(answer, Wait)
            if isinstance(answer, Task):
                ended = answer.pass_id - 1
                self.queue.done(Key(answer.pass_id, answer.task_id, answer.epoch, worker), self.now)
            else:
                ended = answer.pass_id
        raise AssertionError("the job does not end")


@pytest.mark.invariant("Everything that the master acknowledged survives its crash.")
class TestQueueMachine(QueueMachine.TestCase):
    settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
