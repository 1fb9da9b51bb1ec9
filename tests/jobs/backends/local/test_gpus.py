"""GPUs of one machine: each belongs to one replica at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jobs.backends.base import LaunchFailed, ReplicaPlan
from jobs.backends.local import gpus
from jobs.messages import cluster as messages
from runtime import contract


@pytest.fixture
def attempts(tmp_path: Path) -> Path:
    return tmp_path / "attempts"


def replicas(*amounts: int) -> list[ReplicaPlan]:
    return [
        ReplicaPlan(f"trainer-{index}", contract.TRAINER, index, ("python",), {}, 1.0, 2**30, gpu=gpu)
        for index, gpu in enumerate(amounts)
    ]


def assigned(attempts: Path, name: str, amounts: tuple[int, ...], present: list[int]) -> dict[str, list[int]]:
    attempt = attempts / name
    for index in range(len(amounts)):
        (attempt / f"trainer-{index}").mkdir(parents=True, exist_ok=True)
    gpus.assign(attempts, attempt, replicas(*amounts), present)
    return gpus.of(attempt)


@contextmanager
def running(directory: Path) -> Iterator[None]:
    lock = contract.take_lock(directory)
    assert lock is not None
    yield
    os.close(lock)


def test_each_replica_gets_gpus_of_its_own(attempts: Path) -> None:
    assert assigned(attempts, "a", (2, 0, 1), [0, 1, 2, 3]) == {"trainer-0": [0, 1], "trainer-2": [2]}


def test_two_attempts_share_no_gpu(attempts: Path) -> None:
    assigned(attempts, "a", (1,), [0, 1])
    assert assigned(attempts, "b", (1,), [0, 1]) == {"trainer-0": [1]}


def test_a_second_launch_of_the_attempt_keeps_what_the_first_has_chosen(attempts: Path) -> None:
    first = assigned(attempts, "a", (1, 1), [0, 1])
    assert assigned(attempts, "a", (1, 1), [0, 1]) == first


def test_a_replica_that_is_added_later_gets_a_free_gpu(attempts: Path) -> None:
    assigned(attempts, "a", (1,), [0, 1, 2])
    assigned(attempts, "b", (1,), [0, 1, 2])
    assert assigned(attempts, "a", (1, 1), [0, 1, 2]) == {"trainer-0": [0], "trainer-1": [2]}


def test_a_machine_with_too_few_gpus_can_never_run_the_job(attempts: Path) -> None:
    with pytest.raises(LaunchFailed) as refused:
        assigned(attempts, "a", (2,), [0])
    assert (refused.value.why, refused.value.retryable) == (messages.GPUS_MISSING(count=2, total=1), False)


def test_while_the_gpus_are_in_use_the_launch_can_be_tried_again(attempts: Path) -> None:
    assigned(attempts, "a", (1,), [0])
    with pytest.raises(LaunchFailed) as refused:
        assigned(attempts, "b", (1,), [0])
    assert (refused.value.why, refused.value.retryable) == (messages.GPUS_TAKEN(count=1, free=0, total=1), True)


def test_a_replica_that_is_restarted_finds_its_gpu_untouched(attempts: Path) -> None:
    """Between two starts no agent runs, and the attempt was not requested to stop."""
    assigned(attempts, "a", (1,), [0])
    with running(attempts / "a" / "trainer-0"):
        pass
    with pytest.raises(LaunchFailed):
        assigned(attempts, "b", (1,), [0])


@pytest.mark.parametrize("place", ["a", "a/trainer-0"])
def test_a_stopped_replica_gives_its_gpus_back_once_its_agent_is_gone(attempts: Path, place: str) -> None:
    assigned(attempts, "a", (1,), [0])
    (attempts / place / contract.STOP_FILE).touch()
    with running(attempts / "a" / "trainer-0"), pytest.raises(LaunchFailed):
        assigned(attempts, "b", (1,), [0])
    assert assigned(attempts, "b", (1,), [0]) == {"trainer-0": [0]}


def test_a_replica_that_gave_its_gpu_back_gets_one_that_is_free_now(attempts: Path) -> None:
    assigned(attempts, "a", (1,), [0, 1])
    (attempts / "a" / "trainer-0" / contract.STOP_FILE).touch()
    assigned(attempts, "b", (1,), [0, 1])
    assert assigned(attempts, "a", (1,), [0, 1]) == {"trainer-0": [1]}


def test_a_replica_that_requests_a_gpu_does_not_start_without_one(attempts: Path) -> None:
    with pytest.raises(LaunchFailed) as refused:
        gpus.variables(attempts / "a", replicas(1)[0], [0])
    assert refused.value.retryable


@pytest.mark.parametrize(("index", "given"), [(0, "3,5"), (1, "")])
def test_a_process_is_limited_to_its_gpus(attempts: Path, index: int, given: str) -> None:
    assigned(attempts, "a", (2, 0), [3, 5])
    assert gpus.variables(attempts / "a", replicas(2, 0)[index], [3, 5]) == {contract.GPUS: given}


def test_on_a_machine_without_gpus_nothing_is_limited(attempts: Path) -> None:
    assert gpus.variables(attempts / "a", replicas(0)[0], []) == {}
