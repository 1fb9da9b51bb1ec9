"""R: the runtime. The rows of a letter come from several files; each says what it measures."""

from __future__ import annotations

from bench import alone, checkpoint, dispatch, recovery, shaped, steps, updates
from bench.report import Row


def measure() -> list[Row]:
    return [
        *steps.measure(),
        *alone.measure(),
        *shaped.measure(),
        *dispatch.measure(),
        *updates.measure(),
        *checkpoint.measure(),
        *recovery.measure(),
    ]
