"""The arithmetic of the update rules one element at a time, for a compiler: see ``jit``. Pure.

As plain Python these loops are correct but slow. They do what ``numpy_kernels`` does in the same order and with the
same rounding, so that the bits are the same. Constants have the type of the arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.parameters.kernels.numpy_kernels import Kernel

Array = NDArray[Any]


def sgd(p: Array, g: Array, rate: Any) -> None:
    for i in range(p.size):
        p[i] -= g[i] * rate


def momentum(p: Array, g: Array, velocity: Array, rate: Any, mu: Any) -> None:
    for i in range(p.size):
        fresh = velocity[i] * mu - g[i] * rate
        velocity[i] = fresh
        p[i] += fresh


def nesterov(p: Array, g: Array, velocity: Array, rate: Any, mu: Any) -> None:
    for i in range(p.size):
        step = g[i] * rate
        fresh = velocity[i] * mu - step
        velocity[i] = fresh
        p[i] = (p[i] - step) + fresh * mu


def adagrad(p: Array, g: Array, squares: Array, rate: Any, eps: Any) -> None:
    for i in range(p.size):
        total = squares[i] + g[i] * g[i]
        squares[i] = total
        p[i] -= g[i] / (np.sqrt(total) + eps) * rate


def adam(
    p: Array,
    g: Array,
    mean: Array,
    square: Array,
    rate: Any,
    beta1: Any,
    rest1: Any,
    beta2: Any,
    rest2: Any,
    eps: Any,
) -> None:
    for i in range(p.size):
        fresh = mean[i] * beta1 + g[i] * rest1
        total = square[i] * beta2 + g[i] * g[i] * rest2
        mean[i] = fresh
        square[i] = total
        p[i] -= fresh / (np.sqrt(total) + eps) * rate


# By the name of the rule in ``optimisers``.
LOOPS: Mapping[str, Kernel] = {
    "SGD": sgd,
    "Momentum": momentum,
    "Nesterov": nesterov,
    "Adagrad": adagrad,
    "Adam": adam,
}
