"""Health and metrics of the Celery worker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kombu import Connection

from portal.common.monitoring import heartbeat, metrics
from portal.common.monitoring.heartbeat import Heartbeat
from portal.operations.worker import LoopHeartbeat, RunningTasks

TASK = SimpleNamespace(name="jobs.tasks.test")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def busy(clock: Clock, *began: float, threads: int = 2) -> RunningTasks:
    """Return running tasks that began at those times."""
    running = RunningTasks(threads, clock)
    for number, at in enumerate(began):
        clock.now = at
        running.begin(task_id=str(number))
    return running


def test_a_worker_with_a_free_thread_is_active_now() -> None:
    clock = Clock()
    running = busy(clock, 1000.0)
    clock.now = 5000.0
    assert running.last() == 5000.0


@pytest.mark.invariant("A worker or sweep that hangs fails its liveness probe.")
def test_a_worker_whose_threads_are_all_busy_was_active_when_the_last_task_began() -> None:
    clock = Clock()
    running = busy(clock, 1000.0, 1200.0)
    clock.now = 5000.0
    assert running.last() == 1200.0


def test_the_end_of_a_task_frees_its_thread() -> None:
    clock = Clock()
    running = busy(clock, 1000.0, 1200.0)
    running.end(task_id="0", task=TASK, state="SUCCESS")
    clock.now = 5000.0
    assert running.last() == 5000.0


@pytest.mark.parametrize(("state", "result"), [("SUCCESS", "success"), ("FAILURE", "failure"), ("RETRY", "failure")])
def test_a_task_is_counted_by_name_and_result(state: str, result: str) -> None:
    counter = metrics.TASKS.labels(TASK.name, result)
    before = counter._value.get()
    busy(Clock(), 1000.0).end(task_id="0", task=TASK, state=state)
    assert counter._value.get() == before + 1


def test_the_end_of_an_unknown_task_changes_nothing() -> None:
    before = metrics.TASKS_RUNNING._value.get()
    RunningTasks(2).end(task_id="x", task=TASK, state="SUCCESS")
    assert metrics.TASKS_RUNNING._value.get() == before


class Timer:
    """Calls nothing by itself: a loop that hangs. ``turn`` is a turn of the loop."""

    def __init__(self) -> None:
        self.entries: list[Any] = []

    def call_repeatedly(self, seconds: float, function: Any) -> SimpleNamespace:
        self.entries.append(function)
        return SimpleNamespace(cancel=lambda: self.entries.remove(function))

    def turn(self) -> None:
        for function in list(self.entries):
            function()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(heartbeat, "OF_PROCESS", Heartbeat(made))
    return made


def test_the_event_loop_beats_at_its_turns(clock: Clock) -> None:
    consumer = SimpleNamespace(hub=object(), timer=Timer())
    LoopHeartbeat(consumer).start(consumer)
    clock.now += 50
    assert heartbeat.OF_PROCESS.last() == 1000.0
    consumer.timer.turn()
    assert heartbeat.OF_PROCESS.last() == 1050.0


def test_a_worker_that_has_lost_its_broker_does_not_hang(clock: Clock) -> None:
    consumer = SimpleNamespace(hub=object(), timer=Timer())
    step = LoopHeartbeat(consumer)
    step.start(consumer)
    step.stop(consumer)
    clock.now += 10_000
    assert heartbeat.OF_PROCESS.last() == clock.now
    assert consumer.timer.entries == []


def test_a_read_of_the_broker_s_directory_is_a_turn_of_the_loop(clock: Clock) -> None:
    with Connection("", transport="portal.celery_broker:Transport") as connection:
        clock.now += 50
        with pytest.raises(TimeoutError):
            connection.drain_events(timeout=0.01)
    assert heartbeat.OF_PROCESS.last() == 1050.0
