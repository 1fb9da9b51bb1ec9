"""Gradients and values as blocks over a socket, as bfloat16 if both sides can, and ahead of their request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.parameters import row_blocks
from runtime.parameters.array_blocks import block
from runtime.parameters.messages import NOTHING
from runtime.parameters.sharding import BLOCK_BYTES
from runtime.protocol.bf16 import Feedback
from runtime.protocol.client import Client
from runtime.protocol.concurrent_exchange import Exchange
from runtime.protocol.connection import Block, Message
from runtime.protocol.frames import Op
from runtime.trainer.servers.held_values import HeldValues
from runtime.trainer.servers.receive_buffer import ReceiveBuffer

Array = NDArray[Any]

# Between hosts, and over a slower connection than this, blocks are requested as soon as they are made, while gradients
# are still being sent, and buffered until they count. On one host both directions are the work of the same processors:
# there the copy from the buffer costs more than it saves.
SLOW_BYTES_PER_SECOND = 80e6


class SocketTransport:
    """The numbers of one server's requests as blocks. One request at a time.

    A gradient is rounded once: a block that has been made, for a request or ahead of it, keeps its form when the
    request is repeated, so that the error feedback counts once. ``halved``: float32 gradients are sent as bfloat16 with
    error feedback, and updates are returned in the same way if the server can; initial values are exact.
    """

    def __init__(self, client: Client, values: HeldValues, halved: bool = False) -> None:
        self._client = client
        self._values = values
        self._places = values.places
        self._feedback = [Feedback() if halved and value.dtype == np.float32 else None for value in values.blocks]
        self._halved = any(self._feedback)
        self._buffer: ReceiveBuffer | None = None  # for blocks that do not count yet
        self._slow = True  # until the transfer rate is known
        self._gradients: Sequence[Array] = ()  # of the unanswered request, of all parameters
        self._ahead: dict[int, Block] = {}  # blocks of the next push already sent, by their number here
        self._blocks: Sequence[Block] = ()  # all blocks of the unanswered request, in the form in which they are sent

    # --- Ahead of a push ---------------------------------------------------------------------------------------------
    def stage(self, number: int, gradient: Array) -> None:
        """Send this server's part of the gradient of parameter ``number`` ahead of its push."""
        self.unstage(number)
        mine = [(at, place) for at, place in enumerate(self._places) if place.tensor == number]
        blocks = {at: self._block(at, gradient[place.start : place.stop]) for at, place in mine}
        if blocks:
            self._client.send_blocks(Op.STAGE, list(blocks.values()))
            self._ahead |= blocks

    def unstage(self, number: int | None = None) -> None:
        """Drop the blocks sent ahead, of one parameter or of all: another gradient will be pushed."""
        for at in [at for at, one in self._ahead.items() if number in (None, one[0].tensor)]:
            del self._ahead[at]
            if (feedback := self._feedback[at]) is not None:
                feedback.take_back()

    # --- One request -------------------------------------------------------------------------------------------------
    def begin(self, gradients: Sequence[Array]) -> None:
        """Begin a request, whose gradients are sent over the socket at least if it is repeated."""
        self._gradients = gradients
        self._blocks = ()

    def make_blocks(self) -> tuple[Mapping[str, Any], Sequence[Block]]:
        """The fields of a push for its gradients, and the blocks that have not been sent ahead."""
        ahead, self._ahead = self._ahead, {}
        pieces = enumerate(self._pieces())
        self._blocks = [ahead[at] if at in ahead else self._block(at, piece) for at, piece in pieces]
        fields = {name: True for name, is_so in (("staged", ahead), ("halved", self._halved)) if is_so}
        return fields, [one for at, one in enumerate(self._blocks) if at not in ahead]

    def exchange(self, message: Message) -> Exchange | None:
        """A request that sends or fetches numbers, for ``concurrent_exchange.converse``."""
        if self._buffer is not None:
            self._buffer.used = False
        ahead = len(self._places) > 1 and (self._slow or not self._client.local)
        if message.head.op is not Op.PUSH_PULL or not (ahead or self._halved):
            return self._client.exchange(message, self._values.allocate)
        if self._buffer is None:
            self._buffer = ReceiveBuffer(self._places, self._values.blocks)
        update = self._halved and self._buffer.version == message.head.version
        prepared = Message(message.head, {**message.body, "ahead": ahead, "update": update}, message.blocks)
        return self._client.exchange(prepared, self._buffer.memory, self._buffer.began, self._buffer.arrived)

    def settle(self, message: Message, reply: Message, exchange: Exchange) -> Message:
        """Measure the transfer rate of an exchange, and put the buffered values in place.

        Returns the reply. If the buffer misses blocks the request is repeated, and its reply is returned.
        """
        buffer = self._buffer if self._buffer is not None and self._buffer.used else None
        self._measure(message, reply, exchange.seconds, buffer)
        if buffer is None or not reply.body.get("values"):
            return reply
        self._values.overwrite()
        if buffer.take(reply, self._values.blocks):
            return reply
        return self._client.reply(self.repeat(message), self._values.allocate)

    def _measure(self, message: Message, reply: Message, seconds: float, buffer: ReceiveBuffer | None) -> None:
        """Decide by the transfer rate whether blocks are requested as soon as they are made."""
        up, down = (sum(payload.nbytes for _header, payload in one.blocks) for one in (message, reply))
        if buffer is not None and "ahead" in reply.body:
            up, down = max(up, buffer.nbytes >> bool(reply.body.get("update"))), 0  # both directions at once
        if up + down >= BLOCK_BYTES:
            self._slow = up + down < SLOW_BYTES_PER_SECOND * seconds

    def repeat(self, message: Message) -> Message:
        """Send the request again, with all its numbers as blocks. Those that were sent keep their form."""
        rows = [one for one in message.blocks if row_blocks.carries_rows(one[0])]
        self._blocks = self._blocks or [self._block(at, piece) for at, piece in enumerate(self._pieces())]
        body = {**message.body, "shared": False, "staged": False}
        message = Message(message.head, body, [*self._blocks, *rows])
        self._client.send(message)
        return message

    def forget_version(self) -> None:
        """Accept no update to the buffered version: the server may have the values of another trainer."""
        if self._buffer is not None:
            self._buffer.version = NOTHING

    # --- Blocks ------------------------------------------------------------------------------------------------------
    def _pieces(self) -> Sequence[Array]:
        """The parts of this server of the request's gradients."""
        return [place.of(self._gradients) for place in self._places] if len(self._gradients) else ()

    def _block(self, at: int, piece: Array) -> Block:
        """A block of a gradient in the form in which it is sent."""
        feedback = self._feedback[at]
        return block(self._places[at], piece if feedback is None else feedback.narrow(piece))
