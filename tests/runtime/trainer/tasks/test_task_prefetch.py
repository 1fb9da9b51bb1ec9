"""A trainer continues with prefetched tasks, and the master records it even if the trainer is lost."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from runtime.coordination.base import StoreUnavailable
from runtime.coordination.embedded import EmbeddedStore
from runtime.errors import Lost
from runtime.master.messages import JobDone, PassEnd, Task
from runtime.master.types import Status
from runtime.messages import training as messages
from runtime.trainer.events import Listeners
from runtime.trainer.metric_sinks import Reports
from runtime.trainer.task_loop import LAST_CALLS_SECONDS, TaskLoop
from runtime.trainer.tasks.reader import Reader
from runtime.trainer.tasks.task_client import JobFailed, TaskClient
from runtime.trainer.tasks.task_prefetch import PrefetchingSource
from tests.messages import pattern
from tests.runtime.master.test_server import X, Y, start, together  # noqa: F401  a fixture
from tests.waiting import let_pass, until

PATIENCE = 0.1


class AwayStore(EmbeddedStore):
    """Raises for every transaction while it is away."""

    away = False

    def txn(self, compares, operations):
        if self.away:
            raise StoreUnavailable("The store is away.")
        return super().txn(compares, operations)


@pytest.fixture
def store(tmp_path):
    store = AwayStore(tmp_path / "store.db")
    yield store
    store.close()


@pytest.fixture
def running(start, store):  # noqa: F811
    yield start(6, X, passes=1, prefetch=True)
    store.away = False


@pytest.fixture
def source(running):
    return PrefetchingSource(running.client(X), PATIENCE)


def given_several_ahead(source):
    """The second task that was begun: by then the task duration is known to be zero, and all others are given."""
    second = source.next_task(source.next_task())
    until("all others are given", lambda: len(source.coming()) == 4)
    return second


def entries(running):
    return running.master.change(lambda queue, now: list(queue.entries))


def test_all_tasks_are_done_in_order_while_the_store_answers(source):
    seen, task = [], []
    while not isinstance(answer := source.next_task(*task), JobDone):
        task = [answer] if isinstance(answer, Task) else []
        seen.append(answer.task_id if task else answer)
    assert seen[:6] == [0, 1, 2, 3, 4, 5]


def test_one_task_more_is_done_while_the_store_is_away_and_the_job_goes_on_when_it_is_back(source, store):
    first = source.next_task()
    store.away = True
    second = source.next_task(first)
    assert second == first.prefetched[0]
    assert source.extend(second), "nobody waits to be granted time"
    answers = []
    with together(lambda: answers.append(source.next_task(second))):
        store.away = False
    assert [task.task_id for task in answers] == [2]


def test_what_was_done_meanwhile_counts_once(source, store, running):
    first = source.next_task()
    store.away = True
    second = source.next_task(first)
    store.away = False
    assert source.done(second)
    assert [entry.epoch for entry in entries(running)[:3]] == [1, 1, 1]
    assert source.next_task().task_id == 2


def test_a_task_that_fails_returns_the_prefetched_tasks(source, store, running):
    first = source.next_task()
    store.away = True
    second = source.next_task(first)
    store.away = False
    assert source.fail(second, "it raised")
    assert [entry.failures for entry in entries(running)[:4]] == [0, 1, 0, 0]
    assert source.next_task().task_id == 2


def test_prefetched_tasks_are_started_without_waiting_for_an_answer(source, store):
    task = given_several_ahead(source)
    store.away = True
    begun = time.monotonic()
    rest = [task := source.next_task(task) for _ in range(4)]
    assert [task.task_id for task in rest] == [2, 3, 4, 5]
    assert time.monotonic() < begun + PATIENCE, "nothing was waited for"


def test_a_notice_of_a_started_task_reaches_the_master(source, running, monkeypatch):
    second = given_several_ahead(source)
    monkeypatch.setattr(source, "_ask_in_background", lambda: None)
    source.next_task(second)
    until("the master knows", lambda: entries(running)[1].status is Status.DONE)
    assert [entry.prefetched for entry in entries(running)[2:]] == [False, True, True, True]


_KILLED = """
import os, signal, sys
from runtime.trainer.tasks.task_prefetch import PrefetchingSource
from runtime.trainer.tasks.task_client import TaskClient

source = PrefetchingSource(TaskClient(sys.argv[1], 0, 11))
second = source.next_task(source.next_task())
while len(source.coming()) < 4:
    pass
source._ask_in_background = lambda: None  # or that call might report it
source.next_task(second)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.invariant(
    "A killed trainer is blamed for its current task, and its prefetched tasks return without blame."
)
def test_a_killed_trainer_is_blamed_for_its_current_task_from_an_unread_notice(running):
    killed = subprocess.run([sys.executable, "-c", _KILLED, running.address], env={**os.environ, "PYTHONPATH": "."})
    assert killed.returncode == -signal.SIGKILL
    running.master.members([Y])
    done, third, others = entries(running)[:2], entries(running)[2], entries(running)[3:]
    assert [entry.status for entry in done] == [Status.DONE] * 2
    assert (third.failures, third.blamed) == (1, (0,))
    assert [(entry.status, entry.failures) for entry in others] == [(Status.TODO, 0)] * 3


@pytest.mark.parametrize("report", ["fail", "release"])
def test_a_failed_task_returns_all_prefetched_and_keeps_finished_ones(source, running, report):
    second = given_several_ahead(source)
    third = source.next_task(second)
    assert source.fail(third, "it raised") if report == "fail" else source.release(third)
    done, others = entries(running)[:2], entries(running)[2:]
    assert [entry.status for entry in done] == [Status.DONE] * 2
    assert [entry.status for entry in others] == [Status.TODO] * 4
    assert [entry.failures for entry in others] == [report == "fail", 0, 0, 0]
    assert source.coming() == ()


def test_a_task_that_the_master_took_back_is_not_begun_once_the_answer_is_old(running):
    source = PrefetchingSource(running.client(X), fresh=0.0)
    second = given_several_ahead(source)
    running.master.members([Y])
    running.master.members([X, Y])
    answer = source.next_task(second)
    assert answer.epoch == 2, "it is another dispatch"


def test_a_refusal_in_the_background_is_raised_at_the_next_task(source, running):
    second = given_several_ahead(source)
    running.master.change(lambda queue, now: queue._fail("It cannot go on."))
    source._ask_in_background()
    until("there is an answer", source._request.answer.done)
    with pytest.raises(JobFailed, match="cannot go on"):
        source.next_task(second)


def test_the_end_of_a_synchronous_pass_is_known_beforehand(start, store):  # noqa: F811
    running = start(3, X, passes=2, prefetch=True, sync=True)
    source = PrefetchingSource(running.client(X), PATIENCE)
    second = source.next_task(source.next_task())
    until(
        "the last one is given, and the next pass foretold",
        lambda: [t.pass_id for t in source.coming()] == [0, 1, 1, 1],
    )
    third = source.next_task(second)
    store.away = True
    assert source.next_task(third) == PassEnd(0), "the master cannot have answered"
    store.away = False
    assert source.next_task().pass_id == 1


def test_a_task_that_was_another_s_meanwhile_does_not_count_and_the_trainer_goes_on(source, store, running):
    first = source.next_task()
    store.away = True
    second = source.next_task(first)
    store.away = False
    running.master.members([Y])  # it counted as lost, and its tasks went to another
    running.master.members([X, Y])
    other = running.client(Y)
    assert other.next_task().task_id in (0, 1, 2)
    assert not source.done(second)
    assert isinstance(source.next_task(), Task)


# --- The end of a process while no master answers --------------------------------------------------------------------
@pytest.mark.parametrize("report", ["release", "fail"])
@pytest.mark.timed
def test_a_process_that_ends_does_not_wait_long_for_a_master_that_is_gone(source, running, report):
    """Its last report and all earlier ones take no longer than its limit, and the cause is reported."""
    task = given_several_ahead(source)
    running.close()
    source.end_within(0.5)
    began = time.monotonic()
    with pytest.raises(Lost, match=pattern(messages.NO_MASTER_RESPONDED)):
        source.fail(task, "it raised") if report == "fail" else source.release(task)
    assert time.monotonic() - began < 5.0


def test_a_call_that_waits_for_a_silent_master_ends_when_the_process_does():
    outcomes = []

    def ask(client):
        try:
            outcomes.append(client.save_request(1.0))
        except Lost as lost:
            outcomes.append(lost)

    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = TaskClient(f"127.0.0.1:{silent.getsockname()[1]}", 0, 1)
        asking = threading.Thread(target=ask, args=(client,), daemon=True)
        asking.start()
        client.end_within(0.5)
        asking.join(5.0)
    assert [type(outcome) for outcome in outcomes] == [Lost]


@pytest.mark.timed
def test_a_crash_while_no_master_answers_is_over_soon(source, running):
    loop = TaskLoop(
        source,
        Reader("", 1),
        None,
        1,
        stays=False,
        seed=0,
        params=lambda: None,
        listeners=Listeners(),
        reports=Reports(None, lambda: None),
        pause=let_pass,
    )
    loop.current.task = given_several_ahead(source)
    running.close()
    began = time.monotonic()
    loop.crash(ValueError("a fault of the script"))
    assert time.monotonic() - began < 2 * LAST_CALLS_SECONDS
