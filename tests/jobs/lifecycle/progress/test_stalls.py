"""Decision whether a job is stalled: hangs are, healthy runs with evaluations are not."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.lifecycle.progress.signs import Measure, Point, Signs
from jobs.lifecycle.progress.stalls import FIRST_STEP_SECONDS, PATIENCE_SECONDS, limit, quiet_seconds
from runtime import contract

TRAINERS = ("trainer-0", "trainer-1", "trainer-2")
LOOK = 5.0


def window(name: str, step: float) -> list[Point]:
    parts = dict.fromkeys(contract.STEP_PARTS, step / 4)
    return [Point(name, key, seconds) for key, seconds in parts.items()]


def open_step(name: str, part: str, *, still: float = 60.0, collecting: float = 0.0) -> list[Point]:
    return [
        Point(name, contract.STEP_OPEN + part, 60.0),
        Point(name, contract.STEP_STILL, still),
        Point(name, contract.STEP_COLLECTING, collecting),
    ]


def trained(step: float = 0.5, seconds: float = 100.0) -> Signs:
    """Return the signs of three trainers after a time of training, at that time."""
    signs = Signs(since=0.0)
    now = 0.0
    while now < seconds:
        now += max(2.0, step)
        signs.note_points([point for name in TRAINERS for point in window(name, step)], now)
    return signs


def quiet(signs: Signs, after: float, *, timeout: float | None = None) -> float | None:
    return quiet_seconds(signs, signs.progressed + after, timeout)


def stand(signs: Signs, after: float, part: str = "wait", **how: float) -> None:
    """All trainers report an open step at a time after the last progress."""
    for name in TRAINERS:
        signs.note_points(open_step(name, part, **how), signs.progressed + after)


# --- Limits ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("step", "seconds"), [(0.5, 60.0), (10.0, 200.0)])
def test_a_job_without_progress_for_60_s_or_20_steps_is_stalled(step: float, seconds: float) -> None:
    signs = trained(step)
    stand(signs, seconds - 1)
    assert quiet(signs, seconds - 1) is None
    assert quiet(signs, seconds) == seconds


def test_the_time_limit_of_the_specification_replaces_both() -> None:
    signs = trained(10.0)
    stand(signs, 29)
    assert quiet(signs, 30, timeout=30) == 30


def test_the_first_step_may_take_longer() -> None:
    signs = Signs(since=0.0)
    signs.note_points([Point("trainer-0", contract.STEP_PAUSED, 0.0)], 10.0)
    assert limit(signs, None) == FIRST_STEP_SECONDS


def test_lines_count_only_with_a_time_limit() -> None:
    signs = Signs(since=0.0)
    signs.note_lines(5.0)
    assert (limit(signs, None), limit(signs, 30.0)) == (None, 30.0)


def test_a_process_that_shows_nothing_has_no_limit_of_its_own() -> None:
    assert limit(Signs(since=0.0), None) is None


@pytest.mark.parametrize(("interval", "seconds"), [(10, PATIENCE_SECONDS), (100, 2000.0)])
def test_points_count_where_no_steps_are_reported(interval: int, seconds: float) -> None:
    signs = Signs(since=0.0)
    for now in range(0, 10 * interval, interval):
        signs.note_points([Point("trainer-0", "loss", 0.0)], now)
    assert (signs.measure, limit(signs, None)) == (Measure.POINTS, seconds)


def test_a_single_point_says_nothing_about_when_the_next_is_due() -> None:
    signs = Signs(since=0.0)
    signs.note_points([Point("trainer-0", "loss", 0.0)], 600.0)
    assert limit(signs, None) is None


def test_points_of_a_script_are_no_progress_once_steps_are_known() -> None:
    signs = trained()
    assert not signs.note_points([Point("trainer-0", "loss", 0.0)], signs.progressed + 50)
    assert quiet(signs, 60) == 60


# --- What is no stall ------------------------------------------------------------------------------------------------
def test_a_declared_evaluation_is_no_stall() -> None:
    signs = trained()
    signs.note_points([Point("trainer-1", contract.STEP_PAUSED, 1.0)], signs.progressed)
    stand(signs, 3599)
    assert quiet(signs, 3600) is None


def test_after_a_declared_evaluation_the_time_counts_from_its_end() -> None:
    signs = trained()
    signs.note_points([Point("trainer-1", contract.STEP_PAUSED, 1.0)], signs.progressed)
    signs.note_points([Point("trainer-1", contract.STEP_PAUSED, 0.0)], signs.progressed + 300)
    stand(signs, 60)
    assert (quiet(signs, 59), quiet(signs, 60)) == (None, 60)


def test_a_trainer_whose_thread_moves_is_at_work() -> None:
    signs = trained()
    stand(signs, 299)
    signs.note_points(open_step("trainer-0", "compute", still=0.0), signs.progressed + 299)
    assert quiet(signs, 300) is None


def test_a_trainer_that_moves_for_a_quarter_of_an_hour_is_stalled_too() -> None:
    signs = trained()
    signs.note_points(open_step("trainer-0", "compute", still=0.0), signs.progressed + PATIENCE_SECONDS)
    assert quiet(signs, PATIENCE_SECONDS) == PATIENCE_SECONDS


def test_a_trainer_that_only_collects_garbage_is_stalled_although_it_moves() -> None:
    signs = trained()
    signs.note_points(open_step("trainer-0", "compute", still=0.0, collecting=0.9), signs.progressed + 59)
    assert quiet(signs, 60) == 60


def test_a_silent_process_is_not_at_work() -> None:
    signs = trained()
    signs.note_points(open_step("trainer-0", "compute", still=0.0), signs.progressed + 5)
    assert quiet(signs, 60) == 60


def test_a_postponed_job_gets_the_whole_time() -> None:
    signs = trained()
    signs.postpone(signs.progressed + 300)
    assert (quiet(signs, 59), quiet(signs, 60)) == (None, 60)


def test_a_replica_that_is_started_again_gets_the_whole_time() -> None:
    signs = trained()
    signs.restart("trainer-0", signs.progressed + 59)
    assert quiet(signs, 59) is None


# --- Healthy runs ----------------------------------------------------------------------------------------------------
def healthy_run(seed: int, *, declared: bool) -> Iterator[float | None]:
    """Yield the decision of each look at a run with two evaluations of five minutes.

    The steps of the run vary, and one in two hundred takes ten times as long.
    """
    chance = random.Random(seed)
    step = 10 ** chance.uniform(-2, 1.2)
    signs, now = Signs(since=0.0), 0.0
    for _ in range(2):
        for _ in range(25):
            duration = step * chance.lognormvariate(0, 0.4) * (10 if chance.random() < 0.005 else 1)
            yield from pass_time(signs, now, duration, moves=chance.random() < 0.9)
            now += max(duration, 2.0)
            signs.note_points([point for name in TRAINERS for point in window(name, duration)], now)
        if declared:
            signs.note_points([Point("trainer-0", contract.STEP_PAUSED, 1.0)], now)
        yield from pass_time(signs, now, 300.0, moves=True)
        now += 300.0
        if declared:
            signs.note_points([Point("trainer-0", contract.STEP_PAUSED, 0.0)], now)


def pass_time(signs: Signs, now: float, seconds: float, *, moves: bool) -> Iterator[float | None]:
    """Yield the decisions during a step in which trainer-0 works and the others wait for it."""
    passed = LOOK
    while passed < seconds:
        signs.note_points(open_step("trainer-0", "compute", still=0.0 if moves else passed), now + passed)
        for name in TRAINERS[1:]:
            signs.note_points(open_step(name, "wait", still=passed), now + passed)
        yield quiet_seconds(signs, now + passed, None)
        passed += LOOK


@pytest.mark.invariant("A healthy run with undeclared evaluations of five minutes raises no alarm.")
@given(seed=st.integers(0, 2**32), declared=st.booleans())
def test_a_healthy_run_with_long_evaluations_raises_no_alarm(seed: int, declared: bool) -> None:
    assert not any(alarm is not None for alarm in healthy_run(seed, declared=declared))
