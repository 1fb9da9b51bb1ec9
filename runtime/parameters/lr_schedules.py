"""Learning rates that change with the number of updates. Pure: the same update has the same rate on every server."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runtime.messages import training as messages


@dataclass(frozen=True)
class Schedule:
    """A learning rate as a function of the number of previous updates."""

    def at(self, updates: float) -> float:
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        numbers = {key: value.to_json() if isinstance(value, Schedule) else value for key, value in vars(self).items()}
        return {"name": type(self).__name__, **numbers}


@dataclass(frozen=True)
class Constant(Schedule):
    """Always ``lr``. Equivalent to a plain number."""

    lr: float

    def __post_init__(self) -> None:
        _check(self, self.lr)

    def at(self, updates: float) -> float:
        return self.lr


@dataclass(frozen=True)
class Linear(Schedule):
    """From ``first`` to ``last`` in a straight line over ``updates`` updates, then ``last``."""

    first: float
    last: float
    updates: int

    def __post_init__(self) -> None:
        _check(self, self.first, self.last, updates=self.updates)

    def at(self, updates: float) -> float:
        return self.first + (self.last - self.first) * min(1.0, updates / self.updates)


@dataclass(frozen=True)
class Steps(Schedule):
    """``first``, multiplied by ``factor`` after every ``every`` updates."""

    first: float
    factor: float
    every: int

    def __post_init__(self) -> None:
        _check(self, self.first, self.factor, updates=self.every)

    def at(self, updates: float) -> float:
        return float(self.first * self.factor ** (updates // self.every))


@dataclass(frozen=True)
class Cosine(Schedule):
    """From ``first`` to ``last`` along half a cosine over ``updates`` updates, then ``last`` (Loshchilov, Hutter)."""

    first: float
    last: float
    updates: int

    def __post_init__(self) -> None:
        _check(self, self.first, self.last, updates=self.updates)

    def at(self, updates: float) -> float:
        done = min(1.0, updates / self.updates)
        return self.last + (self.first - self.last) * (1 + math.cos(math.pi * done)) / 2


@dataclass(frozen=True)
class WarmUp(Schedule):
    """``then``, a rate or a schedule, reached in equal steps over the first ``updates`` updates."""

    updates: int
    then: float | Schedule

    def __post_init__(self) -> None:
        _check(self, *([] if isinstance(self.then, Schedule) else [self.then]), updates=self.updates)

    def at(self, updates: float) -> float:
        return rate_at(self.then, updates) * min(1.0, (updates + 1) / self.updates)


KINDS: Mapping[str, type[Schedule]] = {kind.__name__: kind for kind in (Constant, Linear, Steps, Cosine, WarmUp)}


def rate_at(lr: float | Schedule, updates: float) -> float:
    """The learning rate after ``updates`` updates, or rounds of them, which may be a fraction."""
    return lr.at(updates) if isinstance(lr, Schedule) else lr


def from_json(body: Mapping[str, Any]) -> Schedule:
    """The schedule of ``Schedule.to_json``. Raises ValueError for an unknown schedule or invalid numbers."""
    numbers = dict(body)
    name = numbers.pop("name", None)
    if name not in KINDS:
        raise ValueError(messages.SCHEDULE_UNKNOWN(name=f"{name!r}", names=", ".join(KINDS)))
    if isinstance(numbers.get("then"), Mapping):
        numbers["then"] = from_json(numbers["then"])
    return KINDS[name](**numbers)


def is_rate(value: object) -> bool:
    """Whether it is a finite number from 0 on."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0


def _check(schedule: Schedule, *rates: object, updates: int = 1) -> None:
    if isinstance(updates, bool) or not isinstance(updates, int) or updates < 1:
        raise ValueError(messages.UPDATES_INVALID(schedule=type(schedule).__name__, value=f"{updates!r}"))
    if odd := [rate for rate in rates if not is_rate(rate)]:
        raise ValueError(messages.LEARNING_RATE_INVALID(schedule=type(schedule).__name__, value=f"{odd[0]!r}"))
