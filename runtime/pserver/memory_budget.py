"""Whether a server's part of the parameters fits into its memory, decided before it is allocated. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from runtime.messages import paragraph
from runtime.messages import training as messages
from runtime.parameters.declaration import ITEM_BYTES, BlockPlace, Declaration

# The memory of the process without parameters.
_ITSELF = 64 << 20
_MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class MemoryBudget:
    """The memory of the server ``name``: ``limit`` bytes (0: without limit). ``keeps``: it writes checkpoints."""

    name: str = "pserver"
    limit: int = 0
    keeps: bool = False

    def refusal(self, declaration: Declaration, places: Sequence[BlockPlace], journalled: bool = False) -> str:
        """Return why the blocks of ``places`` do not fit, with the sizes; empty if they fit.

        Besides the values, memory is needed for the optimiser's state, for received gradients, and for a copy of values
        and state while a checkpoint is written. With ``journalled``, also for the values of the version before.
        """
        values, kept, needed = self._sizes(declaration, places)
        needed += values * journalled
        if not self.limit or needed <= self.limit:
            return ""
        copies = messages.GRADIENTS_AND_CHECKPOINT_COPY() if self.keeps else messages.GRADIENTS()
        too_small = messages.PSERVER_MEMORY_TOO_SMALL(
            server=self.name,
            needed=_mebibytes(needed),
            values=_mebibytes(values),
            state=_mebibytes(kept - values),
            copies=copies,
            limit=_mebibytes(self.limit),
        )
        return paragraph(too_small, messages.INCREASE_PSERVER_RESOURCES())

    def fits_drafts(self, declaration: Declaration, places: Sequence[BlockPlace], rounded: bool = False) -> bool:
        """Whether values and state of the next version fit beside the present ones.

        With ``rounded``, also the exact values, and twice the updates at half their size.
        """
        values, kept, needed = self._sizes(declaration, places)
        return not self.limit or needed + kept + 3 * values * rounded <= self.limit

    def _sizes(self, declaration: Declaration, places: Sequence[BlockPlace]) -> tuple[int, int, int]:
        """The bytes of the values, of values and state, and of everything needed."""
        values = sum((place.stop - place.start) * _item(declaration, place) for place in places)
        kept = values * (1 + declaration.rule.slots)
        return values, kept, kept * (2 if self.keeps else 1) + values + _ITSELF


WITHOUT_LIMIT = MemoryBudget()


def _item(declaration: Declaration, place: BlockPlace) -> int:
    return ITEM_BYTES[declaration.tensors[place.tensor].dtype]


def _mebibytes(size: int) -> str:
    return f"{-(-size // _MEBIBYTE):,} MiB"
