"""Decision which trainer is slower than the others, from the windows of their steps. Pure.

Only its own time counts: a trainer that waits is not slow. A trainer becomes a straggler when nearly all of its recent
windows are longer than those of the others, so a few slow steps are no event.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final, NamedTuple

from jobs.lifecycle.progress.signs import WINDOWS, TrainerSigns
from runtime import contract

# Ratio to the median of the others from which a trainer is a straggler, and below which it is none any more.
ENTER: Final = 1.5
LEAVE: Final = 1.2
# This share of its windows must each exceed the others' median by the factor.
CONSISTENT: Final = 0.9
FACTOR: Final = 1.2
# Its excess must be this share of a step, which includes waiting.
RELEVANT: Final = 0.1

OWN: Final = (contract.STEP_READ, contract.STEP_COMPUTE, contract.STEP_PUSH)


class Straggler(NamedTuple):
    """``ratio`` to the others, and the metric name of the part in which most of the excess lies."""

    name: str
    ratio: float
    part: str


def find(trainers: Sequence[TrainerSigns], present: str = "") -> Straggler | None:
    """Return the straggler, or None. ``present``: the trainer that is one already; it stays one until ``LEAVE``."""
    ready = [_summary(one) for one in trainers if len(one.windows) == WINDOWS]
    if len(ready) < 2:
        return None
    found = [straggler for one in ready if (straggler := _compared(one, ready, kept=one.name == present)) is not None]
    kept = next((one for one in found if one.name == present), None)
    return kept or max(found, key=lambda one: one.ratio, default=None)


class _Summary(NamedTuple):
    """``own``: seconds of each window without waiting, and ``middle`` their median. ``step``: median with waiting."""

    name: str
    own: Sequence[float]
    middle: float
    step: float
    signs: TrainerSigns


def _summary(one: TrainerSigns) -> _Summary:
    own = [_own(parts) for _, parts in one.windows]
    return _Summary(one.name, own, median(own), median(sum(parts.values()) for _, parts in one.windows), one)


def _compared(one: _Summary, ready: Sequence[_Summary], *, kept: bool) -> Straggler | None:
    others = [other for other in ready if other is not one]
    usual = median(other.middle for other in others)
    if usual <= 0 or one.middle - usual < RELEVANT * median(other.step for other in others):
        return None
    consistent = sum(seconds > FACTOR * usual for seconds in one.own) >= CONSISTENT * len(one.own)
    if one.middle / usual < (LEAVE if kept else ENTER) or not (kept or consistent):
        return None
    signs = [other.signs for other in others]
    return Straggler(one.name, one.middle / usual, max(OWN, key=lambda part: _excess(one.signs, signs, part)))


def _own(parts: Mapping[str, float]) -> float:
    return sum(parts.get(name, 0.0) for name in OWN)


def _excess(one: TrainerSigns, others: Sequence[TrainerSigns], part: str) -> float:
    usual = median(parts.get(part, 0.0) for other in others for _, parts in other.windows)
    return median(parts.get(part, 0.0) for _, parts in one.windows) - usual
