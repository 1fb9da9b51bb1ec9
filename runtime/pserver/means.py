"""Weighted means of gradients, made in memory that stays in the processor's cache. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def weighted(blocks: Iterable[Sequence[Array]], weights: Sequence[float]) -> Iterator[Array]:
    """The mean of each tuple of blocks, summed in order of ``weights``; its memory is used again for the next one."""
    rooms: dict[str, tuple[Array, Array]] = {}
    for block in blocks:
        kind, size = block[0].dtype.str, block[0].size
        if kind not in rooms or rooms[kind][0].size < size:
            rooms[kind] = (np.empty_like(block[0]), np.empty_like(block[0]))
        mean, term = (room[:size] for room in rooms[kind])
        np.multiply(block[0], weights[0], out=mean)
        for gradient, weight in zip(block[1:], weights[1:], strict=True):
            np.multiply(gradient, weight, out=term)
            np.add(mean, term, out=mean)
        yield mean
