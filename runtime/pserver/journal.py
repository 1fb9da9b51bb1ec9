"""What keeps a version whole for its readers while the next one is made over it. Pure.

Trainers of the host may look straight at a shard's parameters, which change in place. Before a number is changed it
goes into the journal, and the marks say how many have: whoever finds an update that was broken off, since the server
died in the middle of it, reads the version before out of both. Databases call that an undo journal of before-images.

The marks are the clock, which is twice the version and one more while parameters are being changed, and how many of
all elements the journal has; ``UNCHANGED`` where the newest version has the numbers of the one before.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.protocol.shared import Layout

Array = NDArray[Any]
# Elements and type.
MARKS = (2, "<i8")
CLOCK, KEPT = range(2)
UNCHANGED = -1


class Journal:
    """The marks, and an array as large as each block of the parameters; without ``blocks`` nothing is kept."""

    def __init__(self, marks: Array | None = None, blocks: Sequence[Array] = ()) -> None:
        self.marks = np.zeros(*MARKS) if marks is None else marks
        self.blocks = blocks
        self.starts = list(accumulate((block.size for block in blocks), initial=0))

    @property
    def version(self) -> int:
        return int(self.marks[CLOCK]) >> 1

    @version.setter
    def version(self, version: int) -> None:
        self.marks[CLOCK] = version << 1

    def begin(self) -> None:
        """Parameters are going to be changed. What the journal has is given up first: it is of another version."""
        self.marks[KEPT] = 0
        self.marks[CLOCK] |= 1

    def keep(self, number: int, parameter: Array) -> None:
        """Block ``number`` is going to be changed."""
        if self.blocks:
            np.copyto(self.blocks[number], parameter)
            self.marks[KEPT] = self.starts[number + 1]

    def repeat(self) -> None:
        """The next version has the numbers of the present one."""
        self.marks[KEPT] = UNCHANGED
        self.version += 1


def whole(marks: Array, version: int) -> bool:
    """Whether the parameters are those of ``version`` throughout."""
    return int(marks[CLOCK]) == version << 1


def kept(marks: Array, version: int, total: int) -> int | None:
    """How many of all ``total`` elements of ``version`` are in the journal, the others being among the parameters; None
    where the version is gone."""
    clock, count = int(marks[CLOCK]), int(marks[KEPT])
    if clock == version << 1:
        return 0
    if clock == version << 1 | 1:
        return count
    if clock == (version + 1) << 1 and count in (UNCHANGED, total):
        return max(count, 0)
    return None


def layout(sizes: Layout, journalled: bool) -> Layout:
    """What a segment has: the marks, the parameters, and as much again where there is a journal."""
    return [MARKS, *sizes, *(sizes if journalled else ())]


def restore(values: Sequence[Array], parameters: Sequence[Array], blocks: Sequence[Array], count: int) -> None:
    """Put a version into ``values``: its first ``count`` elements from the journal, the others from the parameters."""
    for value, parameter, block in zip(values, parameters, blocks, strict=True):
        mine = min(max(count, 0), block.size)
        value[:mine], value[mine:] = block[:mine], parameter[mine:]
        count -= mine
