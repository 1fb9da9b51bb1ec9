"""The gradients of a trainer's next step, in memory that the servers of its host can read."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.parameters.array_blocks import all_finite
from runtime.protocol.shared_memory import Layout, Segment

Array = NDArray[Any]

# Elements that are checked and copied together: after the check, the copy finds them in the cache.
PIECE_ELEMENTS = 1 << 18


class Staging:
    """One flat array for every parameter. Raises OSError if memory cannot be shared or is short."""

    def __init__(self, layout: Layout) -> None:
        self._segment = Segment.create(layout)
        self.where = self._segment.where

    @property
    def arrays(self) -> list[Array]:
        return self._segment.arrays

    def close(self) -> None:
        self._segment.close()

    def take(self, number: int, gradient: Array) -> bool:
        """Take the gradient of parameter ``number``; return whether it is finite throughout."""
        target = self._segment.arrays[number]
        if gradient.ctypes.data == target.ctypes.data:
            return all_finite(gradient)
        finite = True
        for start in range(0, gradient.size, PIECE_ELEMENTS):
            piece = gradient[start : start + PIECE_ELEMENTS]
            finite = finite and all_finite(piece)
            np.copyto(target[start : start + PIECE_ELEMENTS], piece)
        return finite
