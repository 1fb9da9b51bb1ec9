"""One version of a shard's blocks and rows of tables, for a checkpoint that is written during training.

Copy on write, block by block: the shard touches a block before it changes it, and the checkpoint writer takes it. The
first of the two copies it, unless it has been taken already. Neither waits for more than the copy of one block.
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
# A parameter's block and the arrays of its optimiser's state; or ids, counts, values and state of some rows.
Kept = tuple[Array, ...]
Copy = Callable[[Array], Array]


class Snapshot:
    """``blocks`` as they are at ``version``, followed by pieces of tables; ``tables`` has the number of pieces of each.

    Blocks are shared with the shard until they are touched or taken. ``copy`` copies an array. ``rounds`` is the
    position of learning rate schedules; None: the version. Any thread may call.
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
        self._attached = [True] * len(self._blocks)  # whether it is still shared with the shard
        self._pieces = dict(tables)
        self._dense = len(self._blocks) - sum(self._pieces.values())
        starts = accumulate(self._pieces.values(), initial=self._dense)
        self._first = dict(zip(self._pieces, starts, strict=False))  # the number of each table's first piece
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._blocks)

    def touch(self, number: int) -> None:
        """Detach a block that the shard is about to change."""
        if self._attached[number]:
            with self._lock:
                self._detach(number)

    def touch_rows(self, table: Table, places: Array) -> None:
        """Detach the rows at these places of a table's shelf that the shard is about to change."""
        for piece in np.unique(places // table.piece_rows).tolist():
            if piece < self._pieces.get(table, 0):
                self.touch(self._first[table] + piece)

    def detach(self) -> None:
        """Detach all blocks of parameters, because the shard is about to change or pass on their memory."""
        for number in range(self._dense):
            self.touch(number)

    def take(self, number: int) -> Kept:
        """Return a block, once; the arrays belong to the caller."""
        with self._lock:
            self._detach(number)
            block, self._blocks[number] = self._blocks[number], ()
        return block

    def _detach(self, number: int) -> None:
        if self._attached[number]:
            self._blocks[number] = tuple(map(self._copy, self._blocks[number]))
            self._attached[number] = False
