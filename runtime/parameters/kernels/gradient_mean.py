"""Weighted means of gradients, made in memory that stays in the processor's cache. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Weights:
    """The share of each gradient in a mean. ``even``: all are equal, and a power of two."""

    def __init__(self, shares: Sequence[float]) -> None:
        self.shares = shares
        self.even = len(set(shares)) == 1 and math.frexp(shares[0])[0] == _POWER_OF_TWO
        self._numbers: dict[str, Array] = {}

    def of(self, dtype: str) -> Array:
        """The shares as an array."""
        if dtype not in self._numbers:
            self._numbers[dtype] = np.array(self.shares, dtype)
        return self._numbers[dtype]


class Means:
    """Makes means one after the other. Its memory is kept: fresh memory would cost more than the arithmetic."""

    def __init__(self) -> None:
        self._workspaces: dict[str, tuple[Array, Array]] = {}

    def weighted(self, gradients: Sequence[Array], weights: Weights) -> Array:
        """The mean of flat arrays, summed in order; valid until the next call."""
        if len(gradients) == 1:
            return gradients[0]
        mean, term = self._workspace(gradients[0])
        (_plain if weights.even else _weighted)(gradients, weights.shares, mean, term)
        return mean

    def _workspace(self, like: Array) -> tuple[Array, Array]:
        kept = self._workspaces.get(like.dtype.str)
        if kept is None or kept[0].size < like.size:
            kept = self._workspaces[like.dtype.str] = (np.empty_like(like), np.empty_like(like))
        return kept[0][: like.size], kept[1][: like.size]


_POWER_OF_TWO = 0.5  # the mantissa of a power of two, from ``math.frexp``


def _weighted(block: Sequence[Array], weights: Sequence[float], mean: Array, term: Array) -> None:
    np.multiply(block[0], weights[0], out=mean)
    for gradient, weight in zip(block[1:], weights[1:], strict=True):
        np.multiply(gradient, weight, out=term)
        np.add(mean, term, out=mean)


def _plain(block: Sequence[Array], weights: Sequence[float], mean: Array, _term: Array) -> None:
    """The same bits in fewer passes: scaling by a power of two is exact, before the sum or after it."""
    np.add(block[0], block[1], out=mean)
    for gradient in block[2:]:
        np.add(mean, gradient, out=mean)
    np.multiply(mean, weights[0], out=mean)
