"""The undo journal: it keeps a version readable while the next one overwrites it. Pure.

Trainers of the host may read a shard's parameters directly, and these change in place. Before a number is changed it
goes into the journal, and the marks count how many have. If the server is killed during an update, a reader restores
the version before from both. Databases call this an undo journal of before-images.

The marks are the clock and a count. The clock is twice the version, plus one while parameters are being changed. The
count is how many of all elements the journal has; ``UNCHANGED`` if the newest version has the numbers of the one
before.
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
        """Start to change parameters. The journal's contents are dropped first, because they are of another version."""
        self.marks[KEPT] = 0
        self.marks[CLOCK] |= 1

    def keep(self, number: int, parameter: Array) -> None:
        """Save block ``number`` before it is changed."""
        if self.blocks:
            np.copyto(self.blocks[number], parameter)
            self.marks[KEPT] = self.starts[number + 1]

    def repeat(self) -> None:
        """Make the next version with the numbers of the present one."""
        self.marks[KEPT] = UNCHANGED
        self.version += 1
