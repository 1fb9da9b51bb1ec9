"""Processes of a benchmark. Each prints "ready", then receives commands as lines and answers each with a line."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import median

ROUNDS = 5
# The accelerator becomes active some time after the start; until then its compiler runs beside the steps.
WARM_UP_SECONDS = 10.0

Process = subprocess.Popen[str]
Group = Sequence[Process]


def one_thread() -> dict[str, str]:
    """Return the environment of a one-core replica (``jobs.launch.planner``): one thread for linear algebra."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@contextmanager
def running(command: Sequence[str], environment: Mapping[str, str]) -> Iterator[Process]:
    """Provide a process that ends when its standard input is closed."""
    process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def ready(processes: Iterable[Process]) -> Group:
    """Wait until all processes are ready."""
    group = list(processes)
    for process in group:
        if (received := answer(process)) != "ready":
            raise RuntimeError(f"A process of the benchmark said {received!r} instead of being ready.")
    return group


def send_line(process: Process, line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def answer(process: Process) -> str:
    assert process.stdout is not None
    line: str = process.stdout.readline()
    return line.strip()


def make_steps(group: Group, steps: int) -> list[tuple[float, str]]:
    """Have all processes of a group make steps concurrently. Return, for each, seconds per step and a digest of the
    result."""
    for process in group:
        send_line(process, str(steps))
    answers = [answer(process).split() for process in group]
    return [(float(seconds), digest) for seconds, digest in answers]


def seconds_of_a_step(groups: Mapping[str, Group], steps: int) -> dict[str, float]:
    """Return the median of each group. The groups take turns."""
    warm_up(groups)
    taken: dict[str, list[float]] = {name: [] for name in groups}
    for _ in range(ROUNDS):
        for name, group in groups.items():
            taken[name].append(max(spent for spent, _digest in make_steps(group, steps)))
    return {name: median(values) for name, values in taken.items()}


def warm_up(groups: Mapping[str, Group]) -> None:
    """Make steps until background compilation is finished."""
    begun = time.monotonic()
    while time.monotonic() - begun < WARM_UP_SECONDS:
        for group in groups.values():
            make_steps(group, 1)
