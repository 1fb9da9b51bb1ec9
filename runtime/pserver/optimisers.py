"""Optimisers that update parameters in place, by blocks that stay in the processor's cache.

A gradient descent over 34 MB runs at memory speed this way, about three times as fast as whole-array expressions. Every
rule works element by element, so that cutting an array into blocks does not change one bit of the result.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from runtime.pserver import schedules
from runtime.pserver.schedules import Schedule

Array = NDArray[Any]

# Elements that are worked on together: with two or three operands they fit a second-level cache.
CACHE_ELEMENTS = 1 << 16


@dataclass(frozen=True)
class Optimiser:
    """A rule and its constants; the state of each parameter lives in arrays made by ``slots``.

    ``slots`` names how many arrays of the parameter's size the rule keeps. ``lr`` may change with the updates.
    """

    lr: float | Schedule = 0.01
    slots: ClassVar[int] = 0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not (schedules.is_rate(value) or (name == "lr" and isinstance(value, Schedule))):
                raise ValueError(f"{type(self).__name__}: {name} must be a number from 0 on, not {value!r}.")

    def to_json(self) -> dict[str, Any]:
        lr = self.lr.to_json() if isinstance(self.lr, Schedule) else self.lr
        return {"name": type(self).__name__, **vars(self), "lr": lr}

    def state(self, parameter: Array) -> tuple[Array, ...]:
        """Fresh state for a flat parameter."""
        return tuple(np.zeros_like(parameter) for _ in range(self.slots))

    def apply(self, parameter: Array, gradient: Array, state: tuple[Array, ...], step: int, scale: float = 1.0) -> None:
        """Update a flat ``parameter`` and its ``state`` in place.

        ``step`` counts the updates of this parameter from 1. ``scale`` multiplies the learning rate.
        """
        scratch = np.empty(min(CACHE_ELEMENTS, parameter.size), parameter.dtype)
        rate = self.rate(step) * scale
        for part in _parts(parameter.size):
            pieces = tuple(slot[part] for slot in state)
            room = scratch[: parameter[part].size]
            self.update(parameter[part], gradient[part], pieces, rate, room)

    def rate(self, step: int) -> float:
        """The learning rate of update number ``step``."""
        return schedules.rate_at(self.lr, step - 1)

    def update(self, p: Array, g: Array, state: tuple[Array, ...], rate: float, room: Array) -> None:
        """Update one cache-sized piece. ``room`` is scratch memory of the same size."""
        raise NotImplementedError


@dataclass(frozen=True)
class SGD(Optimiser):
    """Gradient descent: p -= lr * g."""

    def update(self, p: Array, g: Array, state: tuple[Array, ...], rate: float, room: Array) -> None:
        np.multiply(g, rate, out=room)
        np.subtract(p, room, out=p)


@dataclass(frozen=True)
class Momentum(Optimiser):
    """Heavy ball: v = mu * v - lr * g; p += v."""

    mu: float = 0.9
    slots: ClassVar[int] = 1

    def update(self, p: Array, g: Array, state: tuple[Array, ...], rate: float, room: Array) -> None:
        (velocity,) = state
        _accelerate(velocity, g, self.mu, rate, room)
        np.add(p, velocity, out=p)


@dataclass(frozen=True)
class Nesterov(Optimiser):
    """Nesterov's momentum: v = mu * v - lr * g; p += mu * v - lr * g."""

    mu: float = 0.9
    slots: ClassVar[int] = 1

    def update(self, p: Array, g: Array, state: tuple[Array, ...], rate: float, room: Array) -> None:
        (velocity,) = state
        _accelerate(velocity, g, self.mu, rate, room)
        np.subtract(p, room, out=p)
        np.multiply(velocity, self.mu, out=room)
        np.add(p, room, out=p)


@dataclass(frozen=True)
class Adagrad(Optimiser):
    """Duchi et al. 2011: s += g * g; p -= lr * g / sqrt(s + eps)."""

    eps: float = 1e-5
    slots: ClassVar[int] = 1

    def update(self, p: Array, g: Array, state: tuple[Array, ...], rate: float, room: Array) -> None:
        (squares,) = state
        np.multiply(g, g, out=room)
        np.add(squares, room, out=squares)
        _descend(p, g, squares, self.eps, rate, room)


@dataclass(frozen=True)
class Adam(Optimiser):
    """Kingma and Ba 2015, with eps inside the root as PaddlePaddle's servers have it."""

    lr: float | Schedule = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    slots: ClassVar[int] = 2

    def rate(self, step: int) -> float:
        return super().rate(step) * math.sqrt(1 - self.beta2**step) / (1 - self.beta1**step)

    def update(self, p: Array, g: Array, state: tuple[Array, ...], rate: float, room: Array) -> None:
        mean, square = state
        np.multiply(mean, self.beta1, out=mean)
        np.multiply(g, 1 - self.beta1, out=room)
        np.add(mean, room, out=mean)
        np.multiply(square, self.beta2, out=square)
        np.multiply(g, g, out=room)
        np.multiply(room, 1 - self.beta2, out=room)
        np.add(square, room, out=square)
        _descend(p, mean, square, self.eps, rate, room)


KINDS: Mapping[str, type[Optimiser]] = {kind.__name__: kind for kind in (SGD, Momentum, Nesterov, Adagrad, Adam)}


def from_json(body: Mapping[str, Any]) -> Optimiser:
    """The optimiser of ``Optimiser.to_json``. Raises ValueError for an unknown rule."""
    constants = dict(body)
    name = constants.pop("name", None)
    if name not in KINDS:
        raise ValueError(f"There is no optimiser {name!r}; take one of {', '.join(KINDS)}.")
    if isinstance(constants.get("lr"), Mapping):
        constants["lr"] = schedules.from_json(constants["lr"])
    return KINDS[name](**constants)


def _parts(size: int) -> Iterator[slice]:
    return (slice(start, start + CACHE_ELEMENTS) for start in range(0, size, CACHE_ELEMENTS))


def _accelerate(velocity: Array, g: Array, mu: float, rate: float, room: Array) -> None:
    """velocity = mu * velocity - rate * g; ``room`` holds rate * g afterwards."""
    np.multiply(velocity, mu, out=velocity)
    np.multiply(g, rate, out=room)
    np.subtract(velocity, room, out=velocity)


def _descend(p: Array, direction: Array, squares: Array, eps: float, rate: float, room: Array) -> None:
    """p -= rate * direction / sqrt(squares + eps)."""
    np.add(squares, eps, out=room)
    np.sqrt(room, out=room)
    np.divide(direction, room, out=room)
    np.multiply(room, rate, out=room)
    np.subtract(p, room, out=p)
