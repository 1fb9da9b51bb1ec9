"""The versions that are sent of a shard's parameters. Each is copied and its checksum computed at most once. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.parameters.array_blocks import block
from runtime.parameters.declaration import BlockPlace
from runtime.protocol.connection import Block

Array = NDArray[Any]


class Edition:
    """The parameters of one version. They do not change while the edition has readers.

    ``blocks`` are those made so far: the edition of a draft grows. While it is ``wanted``, its memory is not free, even
    without readers. ``updates`` turn the version before into this one, where that is less to send: bfloat16 to be
    added, or the numbers themselves.
    """

    def __init__(self, version: int, arrays: list[Array], blocks: list[Block]) -> None:
        self.version = version
        self.arrays = arrays
        self.blocks = blocks
        self.updates: list[Block] = []
        self.readers = 0
        self.wanted = True


class Editions:
    """Lends the newest edition. The memory of an outdated edition is used again once it is returned.

    Not for two threads at once: the caller holds the shard's lock.
    """

    def __init__(self) -> None:
        self._newest: Edition | None = None
        self._spare: list[list[Array]] = []

    def lend(self, version: int, places: Sequence[BlockPlace], parameters: list[Array], copied: bool = True) -> Edition:
        """Lend the parameters as they are now, which is ``version``; the caller returns them after sending.

        If not ``copied``, the edition is made of the parameters themselves, which may only be changed after ``own``.
        """
        if self._newest is None or self._newest.version != version:
            self._retire()
            arrays = self._copy(parameters) if copied else parameters
            self._newest = Edition(version, arrays, [])
            self._newest.blocks += [block(*pair, summed=True) for pair in zip(places, arrays, strict=True)]
        return self.borrow(self._newest)

    def borrow(self, edition: Edition) -> Edition:
        """Add a reader to an edition."""
        edition.readers += 1
        return edition

    def return_edition(self, edition: Edition) -> None:
        edition.readers -= 1
        self._reclaim(edition)

    def own(self, parameters: list[Array]) -> list[Array]:
        """Return parameters that may be changed in place: a copy if an edition made of them has readers."""
        newest = self._newest
        if newest is None or newest.arrays is not parameters:
            return parameters
        if not newest.readers:
            self._newest = None
            return parameters
        copy = self._copy(parameters)
        self._retire()
        return copy

    # --- Future versions ----------------------------------------------------------------------------------------------
    def draft(self, version: int, parameters: Sequence[Array]) -> Edition:
        """Allocate memory for the next version, without blocks yet; ``publish`` or ``drop`` it."""
        return Edition(version, self._memory(parameters), [])

    def publish(self, draft: Edition, parameters: list[Array]) -> None:
        """Make a draft the newest version; the memory of the earlier ``parameters`` may be overwritten."""
        if self._newest is None or self._newest.arrays is not parameters:
            self._spare.append(parameters)
        self._retire()
        self._newest = draft

    def drop(self, draft: Edition) -> None:
        """Drop a draft that will not become a version."""
        draft.wanted = False
        self._reclaim(draft)

    def _retire(self) -> None:
        if self._newest is not None:
            self.drop(self._newest)
        self._newest = None

    def _reclaim(self, edition: Edition) -> None:
        if not edition.readers and not edition.wanted:
            self._spare.append(edition.arrays)

    def _memory(self, parameters: Sequence[Array]) -> list[Array]:
        return self._spare.pop() if self._spare else [np.empty_like(parameter) for parameter in parameters]

    def _copy(self, parameters: Sequence[Array]) -> list[Array]:
        arrays = self._memory(parameters)
        for array, parameter in zip(arrays, parameters, strict=True):
            np.copyto(array, parameter)
        return arrays
