"""Passes and batches as parameters and listeners get them."""

import math

import pytest

from runtime.master.messages import Task
from runtime.trainer.events import BeginIteration, BeginPass, EndIteration, EndPass, Event, Listeners
from runtime.trainer.metric_sinks import Reports
from runtime.trainer.training_progress import TrainingProgress


class RecordingParams:
    """Records calls in the list of the events."""

    def __init__(self, seen):
        self._seen = seen

    def __getattr__(self, name):
        return lambda *arguments: self._seen.append((name, *arguments))


@pytest.fixture
def seen():
    return []


@pytest.fixture
def reports():
    return Reports(None, lambda: None)


@pytest.fixture
def progress(seen, reports):
    listeners = Listeners()
    listeners.on(Event, seen.append)
    return TrainingProgress(lambda: RecordingParams(seen), listeners, reports)


def task(pass_id=0, number=3):
    return Task(pass_id, number, 1, ())


def test_a_pass_that_continues_after_a_wait_is_begun_once_for_listeners_and_twice_for_parameters(progress, seen):
    progress.begin_pass(0)
    progress.suspend_pass()
    progress.suspend_pass()
    progress.begin_pass(0)
    assert seen == [BeginPass(0), ("begin_pass", 0), ("end_pass", 0), ("begin_pass", 0)]


def test_a_pass_without_a_task_is_begun_and_ended_at_once(progress, seen):
    progress.end_pass(1)
    assert seen == [("end_pass", 1), BeginPass(1), EndPass(1, {})]


def test_nothing_is_ended_by_a_wait_outside_a_pass(progress, seen):
    progress.suspend_pass()
    assert seen == []


def test_the_position_of_a_batch_is_set_before_its_event(progress, seen):
    progress.begin_pass(0)
    progress.begin_batch(task(), 5)
    assert seen[2:] == [("set_position", 0, 3, 5), BeginIteration(0, 0)]


def test_batches_are_counted_from_0_in_each_pass(progress, seen):
    for pass_id in (0, 1):
        progress.begin_pass(pass_id)
        for count in (1, 2):
            progress.begin_batch(task(pass_id), count)
            progress.end_batch()
    ended = [(event.pass_id, event.batch_id) for event in seen if isinstance(event, EndIteration)]
    assert ended == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_a_batch_ends_with_the_values_that_were_reported_for_it(progress, seen, reports):
    progress.begin_pass(0)
    progress.begin_batch(task(), 1)
    reports.last.update(cost=0.5, accuracy=0.9)
    progress.end_batch()
    assert seen[-1] == EndIteration(0, 0, 0.5, {"accuracy": 0.9})
    progress.begin_batch(task(), 2)
    progress.end_batch()
    assert math.isnan(seen[-1].cost)
    assert seen[-1].metrics == {}


def test_without_parameters_only_listeners_are_notified(seen, reports):
    listeners = Listeners()
    listeners.on(Event, seen.append)
    progress = TrainingProgress(lambda: None, listeners, reports)
    progress.begin_pass(0)
    progress.begin_batch(task(), 1)
    progress.end_batch()
    progress.finish(task())
    progress.end_pass(0)
    progress.leave()
    assert [type(event) for event in seen] == [BeginPass, BeginIteration, EndIteration, EndPass]
