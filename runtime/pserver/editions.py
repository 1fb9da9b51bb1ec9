"""What is sent of a shard's parameters: each version is copied and summed up once for all who ask for it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.protocol.connection import Block
from runtime.pserver.declaration import BlockPlace
from runtime.pserver.numbers import block

Array = NDArray[Any]


class Edition:
    """The parameters of one version; they do not change while somebody has the edition."""

    def __init__(self, version: int, arrays: Sequence[Array], blocks: Sequence[Block]) -> None:
        self.version = version
        self.arrays = arrays
        self.blocks = blocks
        self.readers = 0


class Editions:
    """Lends the newest edition. The memory of one that is out of date and given back serves the next. Not for two
    threads at once: who calls holds the shard's lock."""

    def __init__(self) -> None:
        self._newest: Edition | None = None
        self._spare: list[Sequence[Array]] = []

    def lend(self, version: int, places: Sequence[BlockPlace], parameters: Sequence[Array]) -> Edition:
        """The parameters as they are now, which is ``version``; to be given back once they have been sent."""
        if self._newest is None or self._newest.version != version:
            before, self._newest = self._newest, self._edition(version, places, parameters)
            if before is not None:
                self._reclaim(before)
        self._newest.readers += 1
        return self._newest

    def give_back(self, edition: Edition) -> None:
        edition.readers -= 1
        if edition is not self._newest:
            self._reclaim(edition)

    def _reclaim(self, edition: Edition) -> None:
        if not edition.readers:
            self._spare.append(edition.arrays)

    def _edition(self, version: int, places: Sequence[BlockPlace], parameters: Sequence[Array]) -> Edition:
        arrays = self._spare.pop() if self._spare else [np.empty_like(parameter) for parameter in parameters]
        blocks = []
        for place, array, parameter in zip(places, arrays, parameters, strict=True):
            np.copyto(array, parameter)
            blocks.append(block(place, array, summed=True))  # while it is in the cache
        return Edition(version, arrays, blocks)
