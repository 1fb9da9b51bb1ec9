"""One version of a shard's blocks, for a checkpoint that is written while training goes on. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]
# A parameter's block and the arrays of its optimiser's state.
Kept = tuple[Array, ...]


class Snapshot:
    """``blocks`` as they are at ``version``. They stay the shard's until it calls ``detach`` before it changes them.

    Blocks are taken one at a time under the shard's lock, so that nobody waits for more than one copy.
    """

    def __init__(self, version: int, blocks: Sequence[Kept], sequences: Mapping[int, int]) -> None:
        self.version = version
        self.sequences = sequences
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
