"""Optimisers: the rules by which parameter servers update parameters in place, and their constants.

Every rule works element by element, so that cutting an array into pieces does not change one bit of the result. The
arithmetic is in ``kernels``: in NumPy and in the optional accelerator, which give the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from runtime.messages import training as messages
from runtime.parameters import lr_schedules
from runtime.parameters.kernels import jit, numpy_kernels
from runtime.parameters.lr_schedules import Schedule

Array = NDArray[Any]


@dataclass(frozen=True)
class Optimiser:
    """A rule and its constants; the state of each parameter is in arrays made by ``states``.

    ``slots`` is the number of arrays of the parameter's size that the rule keeps. ``lr`` may change with the updates.
    """

    lr: float | Schedule = 0.01
    slots: ClassVar[int] = 0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not (lr_schedules.is_rate(value) or (name == "lr" and isinstance(value, Schedule))):
                raise ValueError(messages.NUMBER_NEGATIVE(rule=type(self).__name__, name=name, value=f"{value!r}"))

    def to_json(self) -> dict[str, Any]:
        lr = self.lr.to_json() if isinstance(self.lr, Schedule) else self.lr
        return {"name": type(self).__name__, **vars(self), "lr": lr}

    def states(self, parameters: Sequence[Array]) -> list[tuple[Array, ...]]:
        """New state for each of several flat parameters."""
        for parameter in parameters:
            jit.prepare(type(self).__name__, parameter, self.slots)
        wanted = [(parameter.size, parameter.dtype.str) for parameter in parameters]
        kinds = [numpy_kernels.adjacent(wanted) for _ in range(self.slots)]
        return list(zip(*kinds, strict=True)) if kinds else [()] * len(parameters)

    def apply(self, parameter: Array, gradient: Array, state: tuple[Array, ...], step: int, scale: float = 1.0) -> None:
        """Update a flat ``parameter`` and its ``state`` in place.

        ``step`` counts the updates of this parameter from 1. ``scale`` multiplies the learning rate.
        """
        run(type(self).__name__, (parameter, gradient, *state), self.numbers(step, scale))

    def numbers(self, step: int, scale: float = 1.0, rounds: float | None = None) -> tuple[float, ...]:
        """The kernel's arguments after the arrays. ``rounds``: the position of the schedule; None: ``step`` - 1."""
        return (self.rate(step, rounds) * scale, *self.constants(step))

    def rate(self, step: int, rounds: float | None = None) -> float:
        """The learning rate of update number ``step``. ``rounds``: as in ``numbers``."""
        return lr_schedules.rate_at(self.lr, step - 1 if rounds is None else rounds) * self.correction(step)

    def correction(self, step: int) -> float:
        """The factor of the rate at update number ``step`` of a parameter, independent of the schedule."""
        return 1.0

    def corrections(self, steps: Array) -> Array:
        """``correction`` of many parameters at once, each at its own update number."""
        return np.ones(steps.shape)

    def constants(self, steps: int | Array) -> tuple[Any, ...]:
        """The kernel's arguments after the learning rate, at update number ``steps``.

        For an array of update numbers, one a row of a table, a constant that depends on them is an array of its shape.
        """
        return ()


@dataclass(frozen=True)
class SGD(Optimiser):
    """Gradient descent: p -= lr * g."""


@dataclass(frozen=True)
class Momentum(Optimiser):
    """Heavy ball: v = mu * v - lr * g; p += v."""

    mu: float = 0.9
    slots: ClassVar[int] = 1

    def constants(self, steps: int | Array) -> tuple[Any, ...]:
        return (self.mu,)


@dataclass(frozen=True)
class Nesterov(Optimiser):
    """Nesterov's momentum: v = mu * v - lr * g; p += mu * v - lr * g."""

    mu: float = 0.9
    slots: ClassVar[int] = 1

    def constants(self, steps: int | Array) -> tuple[Any, ...]:
        return (self.mu,)


@dataclass(frozen=True)
class Adagrad(Optimiser):
    """Duchi et al. 2011, as torch.optim.Adagrad: s += g * g; p -= lr * g / (sqrt(s) + eps)."""

    eps: float = 1e-10
    slots: ClassVar[int] = 1

    def constants(self, steps: int | Array) -> tuple[Any, ...]:
        return (self.eps,)


@dataclass(frozen=True)
class Adam(Optimiser):
    """Kingma and Ba 2015, algorithm 1, as torch.optim.Adam: p -= lr * m' / (sqrt(v') + eps), m' and v' corrected means.

    The kernel works on the uncorrected means: the correction of m and v is part of the rate, that of v part of eps.
    """

    lr: float | Schedule = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    slots: ClassVar[int] = 2

    def correction(self, step: int) -> float:
        """The correction of both means, which begin at zero."""
        return math.sqrt(1 - self.beta2**step) / (1 - self.beta1**step)

    def corrections(self, steps: Array) -> Array:
        corrected: Array = np.sqrt(1 - self.beta2**steps) / (1 - self.beta1**steps)
        return corrected

    def constants(self, steps: int | Array) -> tuple[Any, ...]:
        eps = self.eps * np.sqrt(1 - self.beta2**steps)
        if not isinstance(eps, np.ndarray):
            eps = float(eps)  # NumPy would compute with its own scalar in float64, whatever the type of the arrays
        return (self.beta1, 1 - self.beta1, self.beta2, 1 - self.beta2, eps)


def run(rule: str, arrays: Sequence[Array], numbers: Sequence[float]) -> None:
    """Apply the named rule to flat arrays (parameter, gradient, state), compiled if available."""
    if not jit.run(rule, arrays, numbers):
        numpy_kernels.run(rule, arrays, numbers)


KINDS: Mapping[str, type[Optimiser]] = {kind.__name__: kind for kind in (SGD, Momentum, Nesterov, Adagrad, Adam)}


def from_json(body: Mapping[str, Any]) -> Optimiser:
    """The optimiser of ``Optimiser.to_json``. Raises ValueError for an unknown rule."""
    constants = dict(body)
    name = constants.pop("name", None)
    if name not in KINDS:
        raise ValueError(messages.OPTIMISER_UNKNOWN(name=f"{name!r}", names=", ".join(KINDS)))
    if isinstance(constants.get("lr"), Mapping):
        constants["lr"] = lr_schedules.from_json(constants["lr"])
    return KINDS[name](**constants)
