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

import numpy as np

from runtime.parameters.journal_layout import CLOCK, KEPT, MARKS, UNCHANGED, Array


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
