"""Decision whether a running job is stalled. Pure.

A job is stalled when nothing has progressed for its time limit and no trainer has declared that it expects no step. A
trainer whose thread still moves is at work, such as in an evaluation that was not declared: it gets ``PATIENCE`` times
as long (docs/decisions/0047).
"""

from __future__ import annotations

from typing import Final

from jobs.lifecycle.progress.signs import Measure, Signs, TrainerSigns

# The limit without ``stall_timeout``: this many seconds, or this many steps.
LEAST_SECONDS: Final = 60.0
STEPS: Final = 20
# Before the length of a step is known: the first one may compile or load something.
FIRST_STEP_SECONDS: Final = 300.0
# A trainer that moves is at work for this many times the limit, and for this many seconds at least. Where movement is
# not reported, as by other frameworks, no job is stalled before these seconds.
PATIENCE: Final = 10
PATIENCE_SECONDS: Final = 900.0
# A trainer whose thread was at the same instruction for this long does not move.
STILL_SECONDS: Final = 10.0
# With this share of its time in full garbage collections, a trainer that moves is hardly at work.
COLLECTING: Final = 0.5


def limit(signs: Signs, stall_timeout: float | None) -> float | None:
    """Return the seconds without progress after which the job is stalled; None: it never is."""
    if stall_timeout is not None:
        return stall_timeout
    seconds = signs.step_seconds()
    if signs.measure is Measure.STEPS:
        return FIRST_STEP_SECONDS if seconds is None else max(LEAST_SECONDS, STEPS * seconds)
    if signs.measure is Measure.POINTS and seconds is not None:
        return max(PATIENCE_SECONDS, STEPS * seconds)
    return None


def quiet_seconds(signs: Signs, now: float, stall_timeout: float | None) -> float | None:
    """Return for how long a stalled job has not progressed; None: the job is not stalled."""
    most = limit(signs, stall_timeout)
    quiet = now - signs.progressed
    if most is None or quiet < most:
        return None
    if any(trainer.paused for trainer in signs.trainers.values()):
        return None
    if any(is_working(trainer, now) for trainer in signs.trainers.values()):
        return quiet if quiet >= max(PATIENCE * most, PATIENCE_SECONDS) else None
    return quiet


def is_working(trainer: TrainerSigns, now: float) -> bool:
    """Return whether the trainer's own thread moves: it neither waits for others, nor stands, nor only collects."""
    return (
        trainer.part in ("read", "compute")
        and not trainer.is_silent(now)
        and trainer.still < STILL_SECONDS
        and trainer.collecting < COLLECTING
    )
