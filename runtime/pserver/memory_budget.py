"""Whether a server's part of the parameters fits into its memory, said before any of it is taken. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from runtime.parameters.declaration import ITEM_BYTES, BlockPlace, Declaration

# What the process takes without a single parameter.
_ITSELF = 64 << 20
_MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class MemoryBudget:
    """The memory of the server ``name``: ``limit`` bytes (0: without limit). ``keeps``: it writes checkpoints."""

    name: str = "pserver"
    limit: int = 0
    keeps: bool = False

    def refusal(self, declaration: Declaration, places: Sequence[BlockPlace], journalled: bool = False) -> str:
        """Why the blocks of ``places`` cannot be held here, in numbers; empty where they can.

        Beside the values there are the optimiser's state and the gradients that come, and while a checkpoint is
        written a copy of values and state. ``journalled``: and the values of the version before.
        """
        values, kept, needed = self._sizes(declaration, places)
        needed += values * journalled
        if not self.limit or needed <= self.limit:
            return ""
        copies = "the gradients and a copy for checkpoints" if self.keeps else "the gradients"
        sizes = map(_mebibytes, (needed, values, kept - values, self.limit))
        return _IN_WORDS.format(self.name, *sizes, copies=copies)

    def fits_drafts(self, declaration: Declaration, places: Sequence[BlockPlace], rounded: bool = False) -> bool:
        """Whether values and state of the next version can be made beside the present ones.

        ``rounded``: and beside both the exact values, and twice the updates in half their size.
        """
        values, kept, needed = self._sizes(declaration, places)
        return not self.limit or needed + kept + 3 * values * rounded <= self.limit

    def _sizes(self, declaration: Declaration, places: Sequence[BlockPlace]) -> tuple[int, int, int]:
        """Bytes of the values, of values and state, and of all that has to be there."""
        values = sum((place.stop - place.start) * _item(declaration, place) for place in places)
        kept = values * (1 + declaration.rule.slots)
        return values, kept, kept * (2 if self.keeps else 1) + values + _ITSELF


_IN_WORDS = (
    "{} would need {} for its part of the parameters ({} of values, {} of the optimiser's state, and room for "
    "{copies}) and has {}. Ask for more memory for role pserver, or for more of them."
)
WITHOUT_LIMIT = MemoryBudget()


def _item(declaration: Declaration, place: BlockPlace) -> int:
    return ITEM_BYTES[declaration.tensors[place.tensor].dtype]


def _mebibytes(size: int) -> str:
    return f"{-(-size // _MEBIBYTE):,} MiB"
