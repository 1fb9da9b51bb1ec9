"""R9: effect of a parameter server's 1 GB checkpoint on training, and the speed of writing it.

One trainer continuously pushes and pulls all parameters, as processes of one host do. The disk's speed is that of
``dd`` with ``conv=fsync`` on the same file system, in turns with the checkpoints.
"""

from __future__ import annotations

import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles

from bench.environment.processes import Process, answer, make_steps, one_thread, ready, running, send_line
from bench.report import Row
from bench.scale import scale

SIZE = scale(1 << 30, 1 << 26)
ELEMENTS = SIZE // 4
ROUNDS = 5
PUSHES = 6  # per round, while nothing is written
PAUSE_GOAL, SPEED_GOAL = 2.0, 0.5


def measure() -> list[Row]:
    with (
        tempfile.TemporaryDirectory(prefix="regatta-bench-", dir=Path.cwd()) as folder,
        _group(folder) as (keeper, trainer),
    ):
        disk, writing, undisturbed, disturbed = [], [], [], []
        _push(trainer)
        for _ in range(ROUNDS):
            disk.append(_dd(Path(folder) / "dd"))
            undisturbed += [_push(trainer) for _ in range(PUSHES)]
            seconds, pushes = _push_while_written(keeper, trainer)
            writing.append(seconds)
            disturbed += pushes
    pause = round(_p99(disturbed) / _p99(undisturbed), 2)
    speed = round(median(disk) / median(writing), 2)
    written = f"a checkpoint of 1 GB in {median(writing):.2f} s, dd in {median(disk):.2f} s: speed over dd"
    return [
        Row("R9", "p99 of a push while 1 GB is written, over without", pause, "<= 2", pause <= PAUSE_GOAL),
        Row("R9", written, speed, ">= 0.5", speed >= SPEED_GOAL),
    ]


@contextmanager
def _group(folder: str) -> Iterator[tuple[Process, Process]]:
    """Provide the server that writes on command, and its trainer."""
    command = [sys.executable, "-m", "bench.runtime.step_process"]
    with running([*command, "keeper", folder], one_thread()) as keeper:
        tail = [str(ELEMENTS), "shared", answer(keeper)]
        with running([*command, "trainer", "0", *tail], one_thread()) as trainer:
            ready([trainer])
            yield keeper, trainer


def _push(trainer: Process) -> float:
    """Return the seconds of one push and pull of everything."""
    return make_steps([trainer], 1)[0][0]


def _push_while_written(keeper: Process, trainer: Process) -> tuple[float, list[float]]:
    """Return the seconds of the checkpoint, and of every push during it."""
    send_line(keeper, "write")
    pushes = [_push(trainer)]
    assert keeper.stdout is not None
    while not select.select([keeper.stdout.fileno()], [], [], 0)[0]:
        pushes.append(_push(trainer))
    return float(answer(keeper)), pushes


def _dd(file: Path) -> float:
    command = ["dd", "if=/dev/zero", f"of={file}", "bs=1M", f"count={SIZE >> 20}", "conv=fsync", "status=none"]
    begun = time.perf_counter()
    subprocess.run(command, check=True)
    seconds = time.perf_counter() - begun
    file.unlink()
    return seconds


def _p99(seconds: Sequence[float]) -> float:
    return quantiles(seconds, n=100, method="inclusive")[-1]
