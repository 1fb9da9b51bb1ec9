"""Decision which trainer is slower than the others."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

import pytest

from jobs.lifecycle.progress.signs import WINDOWS, TrainerSigns
from jobs.lifecycle.progress.stragglers import find
from runtime import contract

READ, COMPUTE, WAIT, PUSH = contract.STEP_PARTS[0], contract.STEP_COMPUTE, contract.STEP_WAIT, contract.STEP_PUSH


def trainer(name: str, read: Sequence[float], compute: float = 1.0, wait: float = 0.0) -> TrainerSigns:
    signs = TrainerSigns(name)
    for at, seconds in enumerate(read):
        signs.windows.append((at, {READ: seconds, COMPUTE: compute, WAIT: wait, PUSH: 0.0}))
    return signs


def steady(name: str, read: float = 0.0, **more: float) -> TrainerSigns:
    return trainer(name, [read] * WINDOWS, **more)


def test_the_slow_trainer_is_named_with_the_part_of_its_excess() -> None:
    found = find([steady("trainer-0"), steady("trainer-1"), steady("trainer-2", read=0.8)])
    assert found is not None
    assert (found.name, round(found.ratio, 1), found.part) == ("trainer-2", 1.8, READ)


def test_one_trainer_is_never_a_straggler() -> None:
    assert find([steady("trainer-0", read=100.0)]) is None


def test_waiting_is_not_slow() -> None:
    assert find([steady("trainer-0"), steady("trainer-1", wait=5.0)]) is None


def test_a_few_slow_windows_are_no_event() -> None:
    slow = [9.0] * (WINDOWS // 2) + [0.0] * (WINDOWS - WINDOWS // 2)
    assert find([steady("trainer-0"), trainer("trainer-1", slow)]) is None


def test_too_few_windows_are_no_event() -> None:
    assert find([steady("trainer-0"), trainer("trainer-1", [9.0] * (WINDOWS - 1))]) is None


def test_an_excess_that_is_a_small_part_of_the_step_is_no_event() -> None:
    others = [steady("trainer-0", wait=50.0), steady("trainer-1", wait=50.0)]
    assert find([*others, steady("trainer-2", read=0.8)]) is None


@pytest.mark.parametrize(("read", "remains"), [(0.3, True), (0.1, False)])
def test_a_straggler_remains_one_until_it_is_clearly_faster(read: float, remains: bool) -> None:
    trainers = [steady("trainer-0"), steady("trainer-1", read=read)]
    assert find(trainers) is None
    assert (find(trainers, "trainer-1") is not None) is remains


def test_many_trainers_are_compared_in_little_time() -> None:
    trainers = [steady(f"trainer-{index}") for index in range(300)]
    begun = time.process_time()
    find(trainers)
    assert time.process_time() - begun < 1


@pytest.mark.parametrize("seed", range(5))
def test_noise_is_no_event(seed: int) -> None:
    chance = random.Random(seed)
    trainers = [TrainerSigns(f"trainer-{index}") for index in range(8)]
    for at in range(150):
        for one in trainers:
            one.windows.append((at, {READ: chance.lognormvariate(0, 0.5), COMPUTE: chance.lognormvariate(0, 0.5)}))
        assert find(trainers) is None


@pytest.mark.parametrize("seed", range(5))
def test_a_trainer_of_1_8_times_the_length_is_found_in_noise(seed: int) -> None:
    chance = random.Random(seed)
    named = []
    trainers = [TrainerSigns(f"trainer-{index}") for index in range(4)]
    for at in range(3 * WINDOWS):
        for one in trainers:
            slow = 1.8 if one.name == "trainer-2" else 1.0
            one.windows.append((at, {READ: slow * chance.lognormvariate(0, 0.15), COMPUTE: 0.0}))
        found = find(trainers, named[-1] if named else "")
        named += [found.name] if found else []
    assert set(named) == {"trainer-2"}
