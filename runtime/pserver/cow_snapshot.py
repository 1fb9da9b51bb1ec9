"""One version of a shard's blocks and rows of tables, for a checkpoint that is written while training goes on.

Copy on write, block by block: whoever changes a block touches it before, and whoever writes the checkpoint takes it.
The first of the two copies it, unless it has been taken already. Neither waits for more than the copy of one block.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.checkpoint.data_position import Progress
from runtime.parameters.embedding_tables import Table

Array = NDArray[Any]
# A parameter's block and the arrays of its optimiser's state; or of some rows of a table ids, counts, values, state.
Kept = tuple[Array, ...]
Copy = Callable[[Array], Array]


class Snapshot:
    """``blocks`` as they are at ``version``, behind them pieces of tables: ``tables`` says how many of each.

    They are the shard's own until they are touched or taken. ``copy`` copies an array. ``rounds`` is the position of
    schedules of the learning rate; None: the version. Any thread may call.
    """

    def __init__(
        self,
        version: int,
        blocks: Sequence[Kept],
        sequences: Mapping[int, int],
        tables: Sequence[tuple[Table, int]] = (),
        progress: Progress | None = None,
        copy: Copy = np.copy,
        rounds: float | None = None,
    ) -> None:
        self.version = version
        self.sequences = sequences
        self.tables = tables
        self.progress = progress or Progress()
        self.rounds = version if rounds is None else rounds
        self._copy = copy
        self._blocks: list[Kept] = list(blocks)
        self._attached = [True] * len(self._blocks)  # still the shard's
        self._pieces = dict(tables)
        self._dense = len(self._blocks) - sum(self._pieces.values())
        starts = accumulate(self._pieces.values(), initial=self._dense)
        self._first = dict(zip(self._pieces, starts, strict=False))  # the number of each table's first piece
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._blocks)

    def touch(self, number: int) -> None:
        """The shard is about to change a block."""
        if self._attached[number]:
            with self._lock:
                self._detach(number)

    def touch_rows(self, table: Table, places: Array) -> None:
        """The shard is about to change the rows at these places of its shelf of a table."""
        for piece in np.unique(places // table.piece_rows).tolist():
            if piece < self._pieces.get(table, 0):
                self.touch(self._first[table] + piece)

    def detach(self) -> None:
        """The shard is about to change, or to give away, the memory of all blocks of parameters."""
        for number in range(self._dense):
            self.touch(number)

    def take(self, number: int) -> Kept:
        """A block, once; the arrays belong to the caller."""
        with self._lock:
            self._detach(number)
            block, self._blocks[number] = self._blocks[number], ()
        return block

    def _detach(self, number: int) -> None:
        if self._attached[number]:
            self._blocks[number] = tuple(map(self._copy, self._blocks[number]))
            self._attached[number] = False
