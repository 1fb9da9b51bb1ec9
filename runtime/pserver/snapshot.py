"""One version of a shard's blocks and rows of tables, for a checkpoint that is written while training goes on. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from runtime.checkpoint.progress import Progress
from runtime.pserver.tables import Table

Array = NDArray[Any]
# A parameter's block and the arrays of its optimiser's state; or of some rows of a table ids, counts, values, state.
Kept = tuple[Array, ...]


class Snapshot:
    """``blocks`` as they are at ``version``, behind them pieces of tables: ``tables`` says how many of
    each. They stay the shard's until it calls ``detach`` before it changes them.

    Blocks are taken one at a time under the shard's lock, so that nobody waits for more than one copy.
    """

    def __init__(
        self,
        version: int,
        blocks: Sequence[Kept],
        sequences: Mapping[int, int],
        tables: Sequence[tuple[Table, int]] = (),
        progress: Progress | None = None,
    ) -> None:
        self.version = version
        self.sequences = sequences
        self.tables = tables
        self.progress = progress or Progress()
        self._blocks: list[Kept] = list(blocks)
        self._attached = True

    def __len__(self) -> int:
        return len(self._blocks)

    def detach(self) -> None:
        """Copy what has not been taken yet: the shard is about to change it."""
        if self._attached:
            self._attached = False
            self._blocks = [_copy(block) for block in self._blocks]

    def take(self, number: int) -> Kept:
        """A block, once; the arrays belong to the caller."""
        block, self._blocks[number] = self._blocks[number], ()
        return _copy(block) if self._attached else block


def _copy(block: Kept) -> Kept:
    return tuple(array.copy() for array in block)
