"""Time of steps by part, and the reports on a step that takes long."""

from __future__ import annotations

import gc
import itertools
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from runtime import contract
from runtime.trainer.step_times import WINDOW_SECONDS, Part, StepTimes
from runtime.trainer.step_watch import LONG_SECONDS, CollectorClock, StepWatch, Stillness, page_faults


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def emitted() -> list[Mapping[str, float]]:
    return []


@pytest.fixture
def times(clock: Clock, emitted: list[Mapping[str, float]]) -> StepTimes:
    times = StepTimes(emitted.append, clock)
    times.begin_loop()
    emitted.clear()
    return times


def spend(times: StepTimes, clock: Clock, parts: Mapping[Part, float]) -> None:
    """Make a step with these seconds of each part."""
    for part, seconds in parts.items():
        times.switch(part)
        clock.now += seconds
    times.switch(Part.READ)
    times.end_step()


STEP = {Part.READ: 0.25, Part.COMPUTE: 0.5, Part.PUSH: 0.125, Part.WAIT: 1.125}


# --- Windows ---------------------------------------------------------------------------------------------------------
def test_the_mean_of_each_part_is_reported(times: StepTimes, clock: Clock, emitted: list[Mapping[str, float]]) -> None:
    spend(times, clock, STEP)
    assert emitted == [
        {contract.STEP_READ: 0.25, contract.STEP_COMPUTE: 0.5, contract.STEP_WAIT: 1.125, contract.STEP_PUSH: 0.125}
    ]


def test_short_steps_are_reported_together(times: StepTimes, clock: Clock, emitted: list[Mapping[str, float]]) -> None:
    steps = 0
    while not emitted:
        spend(times, clock, {Part.COMPUTE: 0.25, Part.READ: 0.25})
        steps += 1
    assert steps * 0.5 == WINDOW_SECONDS
    assert emitted[0][contract.STEP_COMPUTE] == 0.25


def test_time_of_an_evaluation_is_no_part_of_a_step(
    times: StepTimes, clock: Clock, emitted: list[Mapping[str, float]]
) -> None:
    times.switch(Part.COMPUTE)
    with times.evaluation():
        clock.now += 300
    clock.now += 3
    times.switch(Part.READ)
    times.end_step()
    assert emitted[-1][contract.STEP_COMPUTE] == 3


def test_an_evaluation_is_announced_at_both_ends(times: StepTimes, emitted: list[Mapping[str, float]]) -> None:
    with pytest.raises(ZeroDivisionError), times.evaluation():
        emitted.append({"inside": 1 / 0})
    assert emitted == [{contract.STEP_PAUSED: 1.0}, {contract.STEP_PAUSED: 0.0}]


def test_the_end_of_the_loop_is_announced_once(times: StepTimes, emitted: list[Mapping[str, float]]) -> None:
    times.end_loop()
    times.end_loop()
    assert emitted == [{contract.STEP_PAUSED: 1.0}]


def test_an_evaluation_after_the_loop_does_not_expect_steps_afterwards(
    times: StepTimes, emitted: list[Mapping[str, float]]
) -> None:
    times.end_loop()
    emitted.clear()
    with times.evaluation():
        pass
    assert emitted == []


def test_calls_of_another_thread_change_nothing(times: StepTimes, clock: Clock) -> None:
    times.switch(Part.COMPUTE)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(times.switch, Part.WAIT).result()
    assert times.part is Part.COMPUTE


# --- A long step -----------------------------------------------------------------------------------------------------
def watch_of(times: StepTimes, clock: Clock, emitted: list[Mapping[str, float]]) -> Callable[[float], None]:
    """Return a function that lets a number of seconds pass under the watch, in small steps."""
    watch = StepWatch(times, emitted.append, clock)

    def go(seconds: float) -> None:
        for _ in range(int(seconds * 4)):
            clock.now += 0.25
            watch.look()

    return go


def test_a_short_step_is_not_reported(times: StepTimes, clock: Clock, emitted: list[Mapping[str, float]]) -> None:
    watch_of(times, clock, emitted)(LONG_SECONDS - 0.5)
    assert emitted == []


def test_the_part_of_a_long_step_is_reported_with_its_seconds(
    times: StepTimes, clock: Clock, emitted: list[Mapping[str, float]]
) -> None:
    times.switch(Part.WAIT)
    watch_of(times, clock, emitted)(12)
    assert [point[contract.STEP_OPEN_WAIT] for point in emitted] == [9.75]


def test_nothing_is_reported_during_an_evaluation(
    times: StepTimes, clock: Clock, emitted: list[Mapping[str, float]]
) -> None:
    go = watch_of(times, clock, emitted)
    with times.evaluation():
        emitted.clear()
        go(60)
        assert emitted == []


def test_a_thread_that_waits_for_ever_is_still(clock: Clock, emitted: list[Mapping[str, float]]) -> None:
    times, begun, released = StepTimes(emitted.append, clock), threading.Event(), threading.Event()

    def loop() -> None:
        times.begin_loop()
        times.switch(Part.COMPUTE)
        begun.set()
        released.wait()

    thread = threading.Thread(target=loop)
    thread.start()
    begun.wait()
    watch_of(times, clock, emitted)(40)
    released.set()
    thread.join()
    assert emitted[-1][contract.STEP_STILL] > 25


def test_a_thread_that_reaches_other_instructions_is_not_still(clock: Clock) -> None:
    stillness = Stillness(clock)
    for place in itertools.islice(itertools.cycle("ab"), 40):
        clock.now += 1
        stillness.note((place,), 0)
    assert stillness.seconds() == 0


def test_a_thread_that_touches_new_memory_is_not_still(clock: Clock) -> None:
    stillness = Stillness(clock)
    for faults in range(0, 400, 10):
        clock.now += 1
        stillness.note(("a",), faults)
    assert stillness.seconds() == 0


def test_page_faults_of_a_thread_are_counted() -> None:
    before = page_faults(threading.get_native_id())
    touched = bytearray(64 << 20)
    assert page_faults(threading.get_native_id()) - before > 100
    del touched


def test_full_collections_are_measured_while_they_go_on(clock: Clock) -> None:
    collector = CollectorClock(clock)
    collector.note("start", {"generation": 0})
    clock.now += 5
    collector.note("stop", {"generation": 0})
    collector.note("start", {"generation": 2})
    clock.now += 3
    assert collector.seconds() == 3


def test_the_interpreter_announces_full_collections() -> None:
    collector = CollectorClock()
    collector.start()
    try:
        gc.collect()
    finally:
        gc.callbacks.remove(collector.note)
    assert collector.seconds() > 0
