"""The values of one server's blocks that a trainer holds, and the version that they are of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from runtime.parameters import row_blocks
from runtime.parameters.array_blocks import block
from runtime.parameters.declaration import BlockPlace
from runtime.parameters.messages import NOTHING
from runtime.protocol.connection import Block
from runtime.protocol.frames import Header
from runtime.trainer.servers.mapped_parameters import MappedParameters
from runtime.trainer.servers.memory_window import Window

Array = NDArray[Any]


class HeldValues:
    """The blocks of one server, cut from the flat ``arrays`` of all parameters.

    ``version`` is that of the values if they are complete. It is ``NOTHING`` from the first write of another version
    until its last one, so a trainer never offers values of two versions. Values that show the memory of the server
    (``mapped``) are made private before anything else is written into them.
    """

    def __init__(self, places: Sequence[BlockPlace], arrays: Sequence[Array], window: Window | None = None) -> None:
        self.places = places
        self.blocks = [place.of(arrays) for place in places]
        self.mapped = MappedParameters(places, self.blocks, window)
        self.version = NOTHING
        self._memories = {
            (place.tensor, place.block): value.data.cast("B") for place, value in zip(places, self.blocks, strict=True)
        }

    def read(self, version: int, waited_for: bool) -> bool:
        """Copy the parameters from the server's memory; return whether they were those of ``version`` all the time.

        ``waited_for``: they do not change before this trainer has pushed.
        """
        self.version = NOTHING
        return self.mapped.read(version, waited_for)

    def keep(self) -> None:
        """Make the values private to this process: the server's memory may change."""
        if not self.mapped.keep(self.version):
            self.version = NOTHING

    def overwrite(self) -> None:
        """Prepare to write values of another version; its reply sets ``version``."""
        self.keep()
        self.version = NOTHING

    def allocate(self, header: Header) -> memoryview:
        """Memory for a block of a message: of the values, or of rows of a table."""
        if row_blocks.carries_rows(header):
            return row_blocks.allocate(header)
        self.overwrite()
        return self._memories[header.tensor, header.offset]

    def to_blocks(self) -> Sequence[Block]:
        """The values in the form in which they are sent, without a copy."""
        return [block(place, value) for place, value in zip(self.places, self.blocks, strict=True)]
