"""The master on real sockets and the embedded store."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from runtime.coordination.base import Compare, Operation, StoreUnavailable
from runtime.coordination.embedded import EmbeddedStore
from runtime.errors import Lost, Refused, UsageError
from runtime.master.__main__ import await_lead
from runtime.master.listener import Reception
from runtime.master.messages import JobDone, Task, Trainer
from runtime.master.queue_store import Ledger, lead
from runtime.master.server import Master
from runtime.master.types import Happening, Key, Plan, Status
from runtime.messages import training as messages
from runtime.trainer.tasks.task_client import JobFailed, TaskClient, TaskSource
from tests.messages import mentions, pattern
from tests.runtime.master.queue.test_task_queue import table_of

PREFIX = "/regatta/j/1/"
X, Y = Trainer(0, 11), Trainer(1, 12)


class ForgetfulStore(EmbeddedStore):
    """Fails the next transactions: before or after they are written, according to ``failing``."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.failing: list[str] = []

    def txn(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> object:
        when = self.failing.pop(0) if self.failing else ""
        answer = super().txn(compares, operations) if when != "before" else None
        if when:
            raise StoreUnavailable("The store is away.")
        return answer


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ForgetfulStore]:
    store = ForgetfulStore(tmp_path / "store.db")
    yield store
    store.close()


class Running:
    def __init__(
        self, store: EmbeddedStore, tasks: int, plan: Plan, owner: Sequence[Compare], incarnation: int
    ) -> None:
        self.reported: list[Happening] = []
        self.reception = Reception(5, incarnation)
        self.address = self.reception.address
        ledger = Ledger(store, PREFIX, owner)
        self.master = Master(plan, table_of(tasks), ledger, self.reported.extend, self.reception)
        self._clients: list[TaskClient] = []

    def client(self, trainer: Trainer, **options: object) -> TaskClient:
        options.setdefault("deadline", 5.0)
        self._clients.append(TaskClient(self.address, trainer.index, trainer.incarnation, **options))
        return self._clients[-1]

    def close(self) -> None:
        self.master.close()
        self.reception.close()
        for client in self._clients:
            client.close()


@pytest.fixture
def start(store: EmbeddedStore) -> Iterator[Callable[..., Running]]:
    running: list[Running] = []

    def start(
        tasks: int, *live: Trainer, owner: Sequence[Compare] = (), incarnation: int = 0, **plan: object
    ) -> Running:
        options = {"passes": 2, "sync": False, "trainers": max(1, len(live)), **plan}
        running.append(Running(store, tasks, Plan(**options), owner, incarnation))
        running[-1].master.members(live)
        return running[-1]

    yield start
    for one in running:
        one.close()


@pytest.fixture
def reception() -> Iterator[Callable[[], Reception]]:
    """Makes receptions for masters that get no network requests."""
    made: list[Reception] = []

    def make() -> Reception:
        made.append(Reception())
        return made[-1]

    yield make
    for one in made:
        one.close()


def ask(master: Master, trainer: Trainer, request: int) -> object:
    return master.change(lambda queue, now: queue.get(trainer, request, None, now))


@contextmanager
def together(*duties: Callable[[], object]) -> Iterator[None]:
    threads = [threading.Thread(target=duty, daemon=True) for duty in duties]
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()


def work(source: TaskSource) -> list[tuple[int, int]]:
    seen = []
    while not isinstance(answer := source.next_task(), JobDone):
        if isinstance(answer, Task):
            seen.append((answer.pass_id, answer.task_id))
            assert source.done(answer)
    return seen


def test_a_trainer_works_through_all_passes(start):
    client = start(3, X).client(X)
    assert work(client) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]


def test_a_task_comes_over_the_wire_with_its_chunks(start):
    task = start(1, X).client(X).next_task()
    assert task == Task(0, 0, 1, table_of(1).tasks[0])
    assert task.chunks[0].records == 10


@pytest.mark.parametrize("sync", [True, False])
def test_four_trainers_do_every_task_once_in_every_pass(start, sync):
    trainers = [Trainer(i, 20 + i) for i in range(4)]
    running = start(50, *trainers, passes=4, sync=sync)
    done: list[tuple[int, int]] = []
    clients = [running.client(trainer) for trainer in trainers]
    with together(*(lambda client=client: done.extend(work(client)) for client in clients)):
        pass
    assert sorted(done) == [(p, task) for p in range(4) for task in range(50)]


def test_a_waiting_trainer_is_answered_as_soon_as_there_is_a_task(start):
    running = start(1, X, Y, passes=1)
    x, y = running.client(X), running.client(Y)
    task = x.next_task()
    answers: list[object] = []
    with together(lambda: answers.append(y.next_task())):
        running.master.members([Y])
    assert answers[0]._replace(epoch=1) == task


def test_an_unregistered_trainer_waits_for_its_registration(start):
    running = start(1)
    answers: list[object] = []
    with together(lambda: answers.append(running.client(X).next_task())):
        running.master.members([X])
    assert isinstance(answers[0], Task)


def test_a_replaced_trainer_is_refused(start):
    running = start(1, Trainer(0, 99))
    with pytest.raises(Refused, match=pattern(messages.REPLICA_REPLACED, replica="trainer-0")):
        running.client(X).next_task()


def test_a_late_report_does_not_count(start):
    running = start(1, X, Y)
    x, y = running.client(X), running.client(Y)
    task = x.next_task()
    running.master.members([Y])
    y.next_task()
    assert not x.done(task)


def test_a_released_task_is_had_again(start):
    client = start(1, X).client(X)
    task = client.next_task()
    assert client.release(task)
    assert client.next_task() == task._replace(epoch=2)


def test_m9_an_extended_task_has_its_full_time_again(start):
    running = start(1, X)
    client = running.client(X)
    task = client.next_task()
    before = running.master.change(lambda queue, now: queue.entries[0].timer)
    assert client.extend(task)
    after = running.master.change(lambda queue, now: queue.entries[0].timer)
    assert (after.begun, after.deadline > before.deadline) == (before.begun, True)
    assert not client.extend(task._replace(epoch=7))


def test_a_failed_job_is_reported_to_its_trainers(start):
    running = start(1, X, failure_cap=0)
    client = running.client(X)
    client.fail(client.next_task(), "it raised")
    with pytest.raises(JobFailed, match=pattern(messages.RECORD_RANGE, first=0, last=9, file="train.recordio")):
        client.next_task()
    assert not running.master.over
    running.master.members([])
    assert running.master.over
    assert any(happening.kind == "failed" and happening.notable for happening in running.reported)


def test_the_master_ends_when_the_job_is_over_and_all_have_left(start):
    running = start(1, X, passes=1)
    work(running.client(X))
    with together(lambda: running.master.run(lambda: False)):
        running.master.members([])
    assert running.master.over


def test_a_job_without_records_waits_to_report_it_to_its_trainers(start):
    running = start(0)
    assert not running.master.over
    running.master.members([X])
    assert running.client(X).next_task() == JobDone()


def test_only_one_may_save_the_model(start):
    running = start(1, X, Y)
    assert running.client(X).save_request(30)
    assert not running.client(Y).save_request(30)


def test_a_sender_of_another_attempt_is_refused(start):
    running = start(1, X)
    assert isinstance(running.client(X, job=5).next_task(), Task)
    with pytest.raises(Refused, match=pattern(messages.REQUEST_OF_OTHER_ATTEMPT)):
        running.client(X, job=6).next_task()


def test_a_master_that_is_away_is_a_typed_error(start):
    running = start(1, X)
    client = running.client(X, deadline=0.3, patience=0.0)
    running.close()
    with pytest.raises(Lost, match=pattern(messages.NO_MASTER_RESPONDED)):
        client.next_task()


class TestRecovery:
    def test_a_restarted_master_goes_on_where_the_last_commit_left_it(self, start):
        first = start(3, X, passes=1)
        client = first.client(X)
        assert client.done(client.next_task())
        first.close()
        second = start(3, X, passes=1)
        client.move(second.address)
        assert work(client) == [(0, 1), (0, 2)]

    def test_m10_a_get_whose_answer_was_lost_gets_the_same_task_from_the_next_master(self, start):
        first = start(3, X)
        lost = ask(first.master, X, 1)
        first.close()
        second = start(3, X)
        assert second.client(X).next_task() == lost  # its first request has the number 1 too

    def test_in_sync_mode_every_trainer_gets_the_tasks_that_it_would_have_got_without_the_restart(
        self, start, tmp_path
    ):
        def run(restart: bool) -> list[list[tuple[int, int]]]:
            store = EmbeddedStore(tmp_path / f"{restart}.db")
            running = Running(store, 9, Plan(2, True, 2), (), 0)
            running.master.members([X, Y])
            x, y = running.client(X), running.client(Y)
            seen = [x.next_task(), y.next_task()]
            x.release(seen[0])
            if restart:
                running.close()
                running = Running(store, 9, Plan(2, True, 2), (), 0)
                running.master.members([X, Y])
                x.move(running.address), y.move(running.address)
            y.done(seen[1])
            answers: list[list[tuple[int, int]]] = [[], []]
            with together(lambda: answers[0].extend(work(x)), lambda: answers[1].extend(work(y))):
                pass
            running.close()
            store.close()
            return answers

        assert run(restart=True) == run(restart=False)

    def test_deadlines_stand_still_while_there_is_no_master(self, reception, store):
        clock = [1000.0]
        master = Master(Plan(1, False), table_of(1), Ledger(store, PREFIX), list, reception(), clock=lambda: clock[0])
        master.members([X])
        ask(master, X, 1)
        clock[0] += 40.0
        master.change(lambda queue, now: queue.save_request(X, 30.0, now))
        clock[0] += 5000.0
        successor = Master(
            Plan(1, False), table_of(1), Ledger(store, PREFIX), list, reception(), clock=lambda: clock[0]
        )
        successor.members([X])
        clock[0] += 19.0
        successor.change(lambda queue, now: queue.tick(now))
        assert successor.change(lambda queue, now: queue.count(Status.PENDING)) == 1
        clock[0] += 1.0
        successor.change(lambda queue, now: queue.tick(now))
        assert successor.change(lambda queue, now: queue.count(Status.PENDING)) == 0
        master.close(), successor.close()

    def test_the_tasks_of_a_trainer_that_left_meanwhile_return_to_the_queue(self, start):
        first = start(1, X)
        first.client(X).next_task()
        first.close()
        second = start(1, Y)
        assert second.client(Y).next_task().epoch == 2

    def test_the_right_to_save_survives(self, start):
        first = start(1, X, Y)
        first.client(X).save_request(30)
        first.close()
        assert not start(1, X, Y).client(Y).save_request(30)

    def test_m11_another_dataset_is_refused_with_both(self, start, reception, store):
        start(3, X)
        with pytest.raises(UsageError, match=r"30 records in 3 tasks.*40 records in 4 tasks"):
            Master(Plan(1), table_of(4), Ledger(store, PREFIX), list, reception())

    @pytest.mark.parametrize("when", ["before", "after"])
    def test_m5_a_commit_of_unknown_end_loses_and_doubles_nothing(self, start, store, when):
        running = start(4, X, passes=1)
        client = running.client(X)
        seen = []
        while not isinstance(answer := client.next_task(), JobDone):
            if isinstance(answer, Task):
                seen.append(answer.task_id)
                store.failing.append(when)
                assert client.done(answer)
                store.failing.append(when)
        assert sorted(seen) == [0, 1, 2, 3]

    def test_h_a_replaced_master_cannot_commit(self, start, store):
        mine = store.put("/master", b"old", if_revision=0)
        running = start(2, X, owner=[Compare("/master", create_revision=mine.create_revision)])
        store.delete("/master")
        store.put("/master", b"new")
        with pytest.raises(Lost, match=pattern(messages.MASTER_REPLACED)):
            ask(running.master, X, 1)
        assert isinstance(running.master.lost, Lost)

    def test_h_a_master_that_missed_a_commit_reads_again_instead_of_overwriting(self, start):
        old, new = start(2, X), start(2, X)
        done = new.client(X)
        task = done.next_task()
        done.done(task)
        assert ask(old.master, X, 50).task_id != task.task_id


class TestAStoreThatIsAway:
    def test_an_outage_is_waited_for_and_its_start_and_end_are_reported(self, start, store):
        running = start(1, X)
        store.failing += ["before"] * 3
        assert isinstance(running.client(X).next_task(), Task)
        reported = [happening for happening in running.reported if happening.kind == "store"]
        assert [happening.notable for happening in reported] == [True, True]
        assert reported[0].text == messages.STORE_AWAY_TRAINING_CONTINUES(why="The store is away.")
        assert mentions(reported[1].text, messages.STORE_RESPONDS_AGAIN)

    def test_a_request_that_waits_past_its_deadline_gets_wait_replies(self, start, store):
        running = start(1, X)
        client = running.client(X, deadline=1.6)
        store.failing += ["before"] * 30
        assert isinstance(client.next_task(), Task)

    def test_after_its_patience_it_raises_and_nothing_has_changed(self, store, reception):
        master = Master(Plan(1, False), table_of(1), Ledger(store, PREFIX), list, reception(), patience=0.2)
        store.failing += ["before"] * 3
        with pytest.raises(StoreUnavailable):
            master.change(lambda queue, now: queue.members([X], now))
        assert master.change(lambda queue, now: queue.live) == ()
        master.close()

    def test_a_master_waits_for_it_to_lead(self, store):
        entry = store.put("/members/master/0", b"")
        mine = Compare(entry.key, create_revision=entry.create_revision)
        store.failing += ["before", "after"]
        assert await_lead(store, PREFIX, mine, threading.Event(), 30.0)[0] == mine
        assert store.failing == []

    def test_a_master_stopped_meanwhile_does_not_lead(self, store):
        stop = threading.Event()
        stop.set()
        assert await_lead(store, PREFIX, Compare("/members/master/0", create_revision=7), stop, 30.0) is None


class TestTwoMasters:
    @pytest.mark.invariant("A replaced master commits nothing.")
    def test_a_new_leader_revokes_the_commit_right_of_the_one_before(self, start, store):
        keys = [store.put(f"/members/master/{index}", b"") for index in range(2)]
        mine = [Compare(entry.key, create_revision=entry.create_revision) for entry in keys]
        old = start(2, X, owner=lead(store, PREFIX, mine[0]))
        task = old.client(X).next_task()
        new = start(2, X, owner=lead(store, PREFIX, mine[1]))
        with pytest.raises(Lost, match=pattern(messages.MASTER_REPLACED)):
            old.master.change(lambda queue, now: queue.done(Key(0, task.task_id, task.epoch, X), now))
        assert new.client(X).next_task() == task

    def test_one_whose_registration_is_gone_does_not_lead(self, store):
        with pytest.raises(Lost, match=pattern(messages.MASTER_ROLE_TAKEN)):
            lead(store, PREFIX, Compare("/members/master/0", create_revision=7))

    def test_a_request_for_another_master_waits_for_the_news_of_where_it_is(self, start):
        old, new = start(1, X, incarnation=5), start(1, X, incarnation=9)
        client = old.client(X, master=9)
        answers: list[object] = []
        with together(lambda: answers.append(client.next_task())):
            client.move(new.address, 9)
        assert isinstance(answers[0], Task)

    def test_an_answer_of_an_older_master_does_not_count(self, start):
        running = start(1, X, incarnation=5)
        running.reception.incarnation = 0  # a master that does not check the addressee of a request
        client = running.client(X, master=9, patience=0.2)
        with pytest.raises(Lost, match=pattern(messages.REPLACED_MASTER_RESPONDED)):
            client.next_task()

    def test_a_call_that_waits_for_a_lost_master_follows_the_news(self, start):
        first = start(1, X)
        client = first.client(X)
        task = client.next_task()
        first.close()
        answers: list[object] = []
        with together(lambda: answers.append(client.done(task))):
            client.move(start(1, X).address)
        assert answers == [True]


class TestCommits:
    def test_a_commit_of_one_report_is_small_however_many_tasks_there_are(self, reception, store):
        sizes = []
        plain = store.txn

        def measuring(compares: Sequence[Compare], operations: Sequence[Operation]) -> object:
            sizes.append(sum(len(operation.value) for operation in operations))
            return plain(compares, operations)

        master = Master(Plan(2, False), table_of(10_000), Ledger(store, PREFIX), list, reception())
        store.txn = measuring
        master.members([X])
        for request in range(20):
            ask(master, X, request)
        master.close()
        assert max(sizes) < 1000

    def test_requests_that_come_together_are_committed_together(self, start, store):
        running = start(40, X, passes=1)
        before = store.list(PREFIX).revision
        gate = threading.Barrier(16)

        def ask_at_once(request: int) -> None:
            gate.wait(60)
            ask(running.master, X, request)

        with together(*(lambda request=request: ask_at_once(request) for request in range(16))):
            pass
        assert store.list(PREFIX).revision - before <= 16

    def test_m15_at_most_two_commits_begin_in_five_milliseconds(self, start, store):
        running = start(200, X, passes=1)
        before, begun = store.list(PREFIX).revision, time.monotonic()
        for request in range(1, 101):
            ask(running.master, X, request)
        took = time.monotonic() - begun
        assert store.list(PREFIX).revision - before <= took / 0.0025 + 2

    def test_a_task_is_done_and_the_next_one_given_in_one_commit(self, start, store):
        client = start(2, X, passes=1).client(X)
        task = client.next_task()
        before = store.list(PREFIX).revision
        assert client.next_task(task).task_id == 1
        assert store.list(PREFIX).revision == before + 1
        assert client.done(task)  # it was counted

    def test_a_change_that_breaks_off_is_not_committed(self, start, store):
        running = start(2, X)
        before = store.list(PREFIX).revision
        with pytest.raises(Lost, match=pattern(messages.MASTER_CHANGE_FAILED)):
            running.master.change(lambda queue, now: queue.entries.clear() or 1 / 0)
        assert store.list(PREFIX).revision == before


def test_a_listener_that_cannot_be_watched_again_yet_is_so_a_moment_later(monkeypatch):
    now, failures = [0.0], [OSError(errno.ENOMEM, "Cannot allocate memory")]
    reception = Reception(clock=lambda: now[0])
    register = reception._selector.register

    def short(*arguments):
        if failures:
            raise failures.pop()
        return register(*arguments)

    reception._selector.unregister(reception._listener)
    reception._accept_at = 0.0
    monkeypatch.setattr(reception._selector, "register", short)
    reception.poll(0.0)
    now[0] = 1.0
    reception.poll(0.0)
    assert reception._listener in reception._selector.get_map()
    reception.close()
