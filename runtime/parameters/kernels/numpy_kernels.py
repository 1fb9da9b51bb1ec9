"""The arithmetic of the update rules with NumPy, in pieces that stay in the processor's cache. Pure.

Every kernel takes ``(parameter, gradient, *state, *constants, workspace)``: flat arrays of one size and one type that
are updated in place, numbers, and scratch memory of the same size. No operation allocates an array. ``scalar_loops``
has the same arithmetic element by element. Both do the same operations in the same order, so that not one bit depends
on which of them was used, or on how an array was cut.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
# Numbers, or columns of them if every row has its own.
Number = float | Array
Kernel = Callable[..., None]

# The number of elements processed together: a block of the protocol. Measured: 64 Ki elements take a fifth longer.
PIECE_ELEMENTS = 1 << 18

_workspaces = threading.local()


def sgd(p: Array, g: Array, rate: Number, workspace: Array) -> None:
    np.multiply(g, rate, out=workspace)
    np.subtract(p, workspace, out=p)


def momentum(p: Array, g: Array, velocity: Array, rate: Number, mu: float, workspace: Array) -> None:
    _accelerate(velocity, g, rate, mu, workspace)
    np.add(p, velocity, out=p)


def nesterov(p: Array, g: Array, velocity: Array, rate: Number, mu: float, workspace: Array) -> None:
    _accelerate(velocity, g, rate, mu, workspace)
    np.subtract(p, workspace, out=p)
    np.multiply(velocity, mu, out=workspace)
    np.add(p, workspace, out=p)


def adagrad(p: Array, g: Array, squares: Array, rate: Number, eps: Number, workspace: Array) -> None:
    np.multiply(g, g, out=workspace)
    np.add(squares, workspace, out=squares)
    _descend(p, g, squares, rate, eps, workspace)


def adam(
    p: Array,
    g: Array,
    mean: Array,
    square: Array,
    rate: Number,
    beta1: float,
    rest1: float,
    beta2: float,
    rest2: float,
    eps: Number,
    workspace: Array,
) -> None:
    """``rest1`` and ``rest2`` are one minus the betas."""
    np.multiply(mean, beta1, out=mean)
    np.multiply(g, rest1, out=workspace)
    np.add(mean, workspace, out=mean)
    np.multiply(square, beta2, out=square)
    np.multiply(g, g, out=workspace)
    np.multiply(workspace, rest2, out=workspace)
    np.add(square, workspace, out=square)
    _descend(p, mean, square, rate, eps, workspace)


def _accelerate(velocity: Array, g: Array, rate: Number, mu: float, workspace: Array) -> None:
    """velocity = velocity * mu - g * rate; ``workspace`` contains g * rate afterwards."""
    np.multiply(g, rate, out=workspace)
    np.multiply(velocity, mu, out=velocity)
    np.subtract(velocity, workspace, out=velocity)


def _descend(p: Array, direction: Array, squares: Array, rate: Number, eps: Number, workspace: Array) -> None:
    """p -= direction / (sqrt(squares) + eps) * rate."""
    np.sqrt(squares, out=workspace)
    np.add(workspace, eps, out=workspace)
    np.divide(direction, workspace, out=workspace)
    np.multiply(workspace, rate, out=workspace)
    np.subtract(p, workspace, out=p)


# By the name of the rule in ``optimisers``.
KERNELS: Mapping[str, Kernel] = {
    "SGD": sgd,
    "Momentum": momentum,
    "Nesterov": nesterov,
    "Adagrad": adagrad,
    "Adam": adam,
}


def run(rule: str, arrays: Sequence[Array], constants: Sequence[float]) -> None:
    """Apply a rule to flat arrays of any size, piece by piece, with scratch memory of the thread."""
    kernel, size = KERNELS[rule], arrays[0].size
    scratch = _scratch(arrays[0].dtype)
    for start in range(0, size, PIECE_ELEMENTS):
        stop = min(start + PIECE_ELEMENTS, size)
        kernel(*(array[start:stop] for array in arrays), *constants, scratch[: stop - start])


def _scratch(dtype: np.dtype[Any]) -> Array:
    """Scratch memory of this thread, allocated once: new memory would cost a page fault for every 4 KiB."""
    kept: Array | None = getattr(_workspaces, dtype.char, None)
    if kept is None:
        kept = np.empty(PIECE_ELEMENTS, dtype)
        setattr(_workspaces, dtype.char, kept)
    return kept


def adjacent(wanted: Sequence[tuple[int, str]]) -> Iterator[Array]:
    """Zeroed flat arrays of the given sizes and types; those of one type are cut from a single allocation.

    A large allocation gets large pages, with which an update takes up to a quarter less time.
    """
    sizes: dict[str, list[int]] = {}
    for size, dtype in wanted:
        sizes.setdefault(dtype, []).append(size)
    cuts = {dtype: _cut(np.zeros(sum(some), dtype), some) for dtype, some in sizes.items()}
    return (next(cuts[dtype]) for _size, dtype in wanted)


def _cut(memory: Array, sizes: Sequence[int]) -> Iterator[Array]:
    bounds = accumulate(sizes, initial=0)
    return (memory[start:stop] for start, stop in pairwise(bounds))
