"""A buffer for blocks of values whose version is not complete yet. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.parameters import row_blocks
from runtime.parameters.declaration import BlockPlace
from runtime.parameters.messages import NOTHING
from runtime.protocol import bf16
from runtime.protocol.connection import Message
from runtime.protocol.frames import DType, Header, Op

Array = NDArray[Any]


class ReceiveBuffer:
    """Memory for all blocks of one server, and a count of the last draft's blocks.

    All blocks of an answer are received here, those before the reply and those with it. The values change when all have
    arrived, so a server that is killed in between leaves its trainers with a complete version. ``version`` is that of
    the arrays if they are complete; updates in bfloat16 are added to it, independently of changes of the values by user
    code.
    """

    def __init__(self, places: Sequence[BlockPlace], like: Sequence[Array]) -> None:
        self._arrays = [np.empty_like(value) for value in like]
        keys = [(place.tensor, place.block) for place in places]
        self._keys = keys
        self._halves: dict[tuple[int, int], Array] = {}
        self.version = NOTHING
        self._memories = {key: array.data.cast("B") for key, array in zip(keys, self._arrays, strict=True)}
        self.nbytes = sum(array.nbytes for array in self._arrays)
        self.used = False  # by the answer that is being received
        self._draft = 0
        self._came = 0
        self._early = False  # whether the present message precedes the reply

    def began(self, head: Header, body: Mapping[str, Any]) -> None:
        """A message begins; ``head.version`` is the number of the draft of a block that precedes the reply."""
        self._early = head.op is Op.AHEAD
        if not self.used:
            self.used, self._draft, self._came = True, 0, 0
        if self._early and head.version != self._draft:
            self._draft, self._came = head.version, 0

    def memory(self, header: Header) -> memoryview:
        if row_blocks.carries_rows(header):
            return row_blocks.allocate(header)
        key = header.tensor, header.offset
        if header.dtype is DType.BF16:
            size = self._memories[key].nbytes // np.dtype("<f4").itemsize
            return self._halves.setdefault(key, np.empty(size, "<u2")).data.cast("B")
        self.version = NOTHING  # until the last one has arrived
        return self._memories[key]

    def arrived(self, header: Header) -> None:
        self._came += self._early

    def take(self, reply: Message, values: Sequence[Array]) -> bool:
        """Copy the blocks that count now; return whether they are complete.

        The reply contains the number of blocks that arrived before it.
        """
        ahead = int(reply.body.get("ahead", 0))
        with_reply = sum(not row_blocks.carries_rows(header) for header, _payload in reply.blocks)
        if ahead not in (0, self._came) or ahead + with_reply != len(self._arrays):
            return False
        for key, value, array in zip(self._keys, values, self._arrays, strict=True):
            if reply.body.get("update") and key in self._halves:
                np.add(array, bf16.widen(self._halves[key]), out=array)
            np.copyto(value, array)
        self.version = reply.head.version
        return True
