"""How a trainer's numbers reach one parameter server: in memory that both map, or else as blocks over the socket."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.errors import Refused
from runtime.protocol.bf16 import Feedback
from runtime.protocol.client import Client
from runtime.protocol.connection import Block, Message
from runtime.protocol.frames import Header, Op
from runtime.protocol.shared import NOT_SHARED, Segment
from runtime.pserver.declaration import BlockPlace, Declaration
from runtime.pserver.numbers import block
from runtime.pserver.shard import Outcome

Array = NDArray[Any]


class Link:
    """One server as a trainer sees it. ``places`` are its blocks, ``values`` the flat parameters that pulls fill.

    Memory is shared where the server can reach it, unless ``share`` is false. When the connection breaks, the server
    forgets the memory; from then on blocks go over the socket, where a request sent again is applied once. ``halved``:
    float32 gradients go over the socket as bfloat16 with error feedback; first values and pulls are always exact.
    """

    def __init__(
        self,
        client: Client,
        places: Sequence[BlockPlace],
        values: Sequence[Array],
        share: bool = True,
        halved: bool = False,
    ) -> None:
        self._client = client
        self._places = places
        self._feedback = [Feedback() if halved and _is_float32(values, place) else None for place in places]
        self._values = self._pieces(values)
        self._memories = {
            (place.tensor, place.block): value.data.cast("B") for place, value in zip(places, self._values, strict=True)
        }
        self._share = share
        self._segment: Segment | None = None
        self._asked: Sequence[Array] = ()  # what went out with the request that is not answered yet

    def start(self, declaration: Declaration) -> None:
        """Declare, give the first values if the server asks for them, and share memory."""
        reply = self._client.request(Op.DECLARE, declaration.to_json())
        if reply.body["outcome"] == Outcome.INITIALISE:
            self._client.request(Op.INIT, {"digest": declaration.digest}, self._blocks(self._values))
        if self._share and self._places:
            self._segment = self._shared_segment()

    def _shared_segment(self) -> Segment | None:
        try:
            segment = Segment.create(self._values)
        except OSError:
            return None
        shared = self._client.call(Op.SHARE, segment.where)["shared"]
        segment.forget()
        return segment if shared else None

    # --- One request -------------------------------------------------------------------------------------------------
    def ask(self, op: Op, body: Mapping[str, Any], gradients: Sequence[Array] = (), version: int = 0) -> Message:
        """Send a request; ``gradients`` are those of all parameters, flat. ``answer`` waits for the reply."""
        self._asked = self._pieces(gradients)
        message = self._client.prepare(op, self._told(body), self._sent(self._asked), version)
        self._client.send(message)
        return message

    def answer(self, message: Message) -> Message:
        """The reply; values that came with it are in place."""
        try:
            reply = self._client.reply(message, self._memory)
        except Refused as refused:
            if refused.code != NOT_SHARED:
                raise
            self._segment = None
            message = Message(message.head, {**message.body, "shared": False}, self._gradients(self._asked))
            self._client.send(message)
            reply = self._client.reply(message, self._memory)
        if reply.body.get("values") and self._segment is not None:
            _copy(self._values, self._segment.arrays)
        return reply

    def _told(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**body, "shared": True} if self._segment is not None else body

    def _sent(self, arrays: Sequence[Array]) -> Sequence[Block]:
        if self._segment is None:
            return self._gradients(arrays)
        if arrays:
            _copy(self._segment.arrays, arrays)
        return ()

    # --- Blocks ------------------------------------------------------------------------------------------------------
    def _pieces(self, arrays: Sequence[Array]) -> Sequence[Array]:
        """The blocks of this server, cut out of flat arrays of all parameters."""
        return [arrays[place.tensor][place.start : place.stop] for place in self._places] if len(arrays) else ()

    def _gradients(self, arrays: Sequence[Array]) -> Sequence[Block]:
        """Blocks of gradients, in the form in which they travel."""
        return self._blocks(
            [
                array if feedback is None else feedback.narrow(array)
                for array, feedback in zip(arrays, self._feedback, strict=bool(len(arrays)))
            ]
        )

    def _blocks(self, arrays: Sequence[Array]) -> Sequence[Block]:
        return [block(place, array) for place, array in zip(self._places, arrays, strict=bool(len(arrays)))]

    def _memory(self, header: Header) -> memoryview:
        return self._memories[header.tensor, header.offset]


def _is_float32(values: Sequence[Array], place: BlockPlace) -> bool:
    return values[place.tensor].dtype == np.float32


def _copy(into: Iterable[Array], out_of: Iterable[Array]) -> None:
    for target, source in zip(into, out_of, strict=True):
        np.copyto(target, source)
