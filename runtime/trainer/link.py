"""How a trainer's numbers reach one parameter server: in memory that both map, or else as blocks over the socket."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.checkpoint.progress import Position, Progress
from runtime.errors import Lost, Refused, RegattaError
from runtime.protocol.bf16 import Feedback
from runtime.protocol.client import DEADLINE_SECONDS, Client
from runtime.protocol.connection import Block, Message
from runtime.protocol.frames import Header, Op
from runtime.protocol.shared import NOT_SHARED, Handover, Segment
from runtime.pserver import parcels
from runtime.pserver.comeback import NOTHING, Offer, Standing
from runtime.pserver.declaration import BlockPlace, Declaration
from runtime.pserver.numbers import block
from runtime.pserver.shard import CLOCK, Outcome
from runtime.trainer.staging import Staging

Array = NDArray[Any]

# A server that is gone is started again, and has its values back, within this time.
PATIENCE_SECONDS = 90.0
LOOK_SECONDS = 0.2
# So often parameters are copied out of the server's memory before it is asked to send them.
COPIES = 4
# Answers of a process that is not this server, or is it no more.
_TRY_AGAIN = ("not_owner",)


class Link:
    """One server as a trainer sees it. ``places`` are its blocks, ``values`` the flat parameters that pulls fill.

    A server of this host reads the gradients where they are staged, and this link copies the parameters out of the
    server's memory. When the connection breaks the server forgets the memory: the request that was not answered goes
    over the socket as blocks, where one sent again is applied once, and memory is shared anew with the next.
    ``halved``: float32 gradients go over the socket as bfloat16 with error feedback; first values and pulls are always
    exact.

    A server that is gone is waited for. To the process that takes its place the link offers the values that it holds,
    and sends the request that was not answered once more, with the same number.
    """

    def __init__(
        self,
        client: Client,
        places: Sequence[BlockPlace],
        values: Sequence[Array],
        halved: bool = False,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self._client = client
        self._places = places
        self._feedback = [Feedback() if halved and _is_float32(values, place) else None for place in places]
        self._values = self._pieces(values)
        self._memories = {
            (place.tensor, place.block): value.data.cast("B") for place, value in zip(places, self._values, strict=True)
        }
        self._patience = patience
        self._staging: Staging | None = None  # where a server that is in reach finds the gradients
        self._segment: Segment | None = None  # clock and parameters of the server
        self._declaration: Declaration | None = None  # once the server has it
        self._asked: Sequence[Array] = ()  # gradients of the request that is not answered yet
        self._offer = Offer()  # where this trainer is, by the requests that were answered
        self._standing = Standing()  # what the values that it holds contain
        self._progress = Progress()  # of the data, by this trainer
        self._using = threading.Lock()  # held from a request to its answer
        self._redirected = threading.Event()
        self._strange = False  # the process that is asked has not been told what this trainer holds

    def start(self, declaration: Declaration) -> None:
        """Declare, and give the first values if the server asks for them. Raises Lost, Leaving."""
        patience = _Patience(self._patience)
        while self._declaration is None:
            try:
                self._client.follow()
                self._answered(self._client.request(Op.DECLARE, declaration.to_json()), declaration)
                self._declaration = declaration
            except (Lost, Refused) as error:
                self._await_another(error, patience)

    def _answered(self, reply: Message, declaration: Declaration) -> None:
        """Do what the answer to a declaration or an offer asks for."""
        outcome = reply.body["outcome"]
        if outcome == Outcome.INITIALISE:
            self._client.request(Op.INIT, {"digest": declaration.digest}, self._blocks(self._values))
            self._offer = replace(self._offer, held=0)
        elif outcome == Outcome.RESEED:
            body = {"standing": self._standing.to_json()}
            self._client.request(Op.RESEED, body, self._blocks(self._values), version=self._offer.held)
        self._segment = self._shared_segment()

    # --- Memory ------------------------------------------------------------------------------------------------------
    def share(self, staging: Staging) -> bool:
        """Share memory with the server, if it is in reach; every gradient is then to be staged from now on."""
        self._staging = staging
        self._segment = self._shared_segment()
        return self._staging is not None

    def _shared_segment(self) -> Segment | None:
        """The server maps the gradients, and hands over the descriptor of its parameters."""
        if self._staging is None:
            return None
        with contextlib.suppress(OSError, ValueError), contextlib.closing(Handover()) as handover:
            try:
                answer = self._client.call(Op.SHARE, {**self._staging.where, "handover": handover.name})
            except (Lost, Refused):
                return None  # the next request tells what is wrong
            if answer["shared"]:
                layout = [CLOCK, *((value.size, value.dtype.str) for value in self._values)]
                return Segment.adopt(handover.collect(), layout)
        self._staging = None
        return None

    def _with_values(self, reply: Message) -> Message:
        """Copy the parameters that a reply told of; gives the reply that tells which they are.

        In synchronous training the next version waits for this trainer, and the first copy is whole. Where others push
        meanwhile it may not be; in the end the server sends a copy that it makes between two updates.
        """
        for _ in range(COPIES):
            if self._copied(reply.head.version):
                return reply
            reply = self._client.request(Op.PULL, {"shared": True})
        return self._client.request(Op.PULL, allocate=self._memory)

    def _copied(self, version: int) -> bool:
        """Copy the parameters; whether they were those of ``version`` all the time."""
        if self._segment is None:
            return False
        self._offer = replace(self._offer, held=NOTHING)  # until all of them are here they may be of two versions
        clock, *parameters = self._segment.arrays
        if int(clock[0]) != version << 1:
            return False
        for value, parameter in zip(self._values, parameters, strict=True):
            np.copyto(value, parameter)
        return int(clock[0]) == version << 1

    # --- One request -------------------------------------------------------------------------------------------------
    def ask(
        self,
        op: Op,
        body: Mapping[str, Any],
        gradients: Sequence[Array] = (),
        version: int = 0,
        rows: Sequence[Block] = (),
    ) -> Message:
        """Send a request; ``answer`` waits for the reply and must be called before anything else is asked.

        ``gradients`` are those of all parameters, flat; ``rows`` are blocks of tables, which always go over the socket.
        """
        self._using.acquire()
        try:
            if self._segment is None:
                self._segment = self._shared_segment()
            self._asked = gradients
            shared = self._segment is not None
            told, blocks = ({**body, "shared": True}, ()) if shared else (body, self._gradients(gradients))
            message = self._client.prepare(op, told, [*blocks, *rows], version)
            self._client.send(message)
        except BaseException:
            self._using.release()
            raise
        return message

    def answer(self, message: Message) -> Message:
        """The reply; values that came with it are in place. Raises Refused, Lost, Leaving."""
        try:
            reply = self._insist(message)
            self._note(message, reply)
            return reply
        finally:
            self._using.release()

    def _insist(self, message: Message) -> Message:
        """Wait for the reply, of whichever process is the server."""
        patience = _Patience(self._patience)
        while True:
            try:
                patience.begin()
                if self._client.moved or self._strange:
                    self._rejoin()
                    message = self._again(message)
                return self._receive(message)
            except (Lost, Refused) as error:
                self._await_another(error, patience)

    def _receive(self, message: Message) -> Message:
        try:
            reply = self._client.reply(message, self._memory)
            return self._with_values(reply) if reply.body.get("values") and message.body.get("shared") else reply
        except Refused as refused:
            if refused.code != NOT_SHARED:
                raise
            self._segment = None
            return self._client.reply(self._again(message), self._memory)

    def _again(self, message: Message) -> Message:
        """Send what was asked once more, over the socket. Numbers that have travelled there keep their form."""
        rows = [one for one in message.blocks if parcels.carries_rows(one[0])]
        numbers = message.blocks[: len(message.blocks) - len(rows)] or self._gradients(self._asked)
        message = Message(message.head, {**message.body, "shared": False}, [*numbers, *rows])
        self._client.send(message)
        return message

    def _note(self, message: Message, reply: Message) -> None:
        """Remember where this trainer is with the server."""
        place = self._offer
        if reply.body.get("values"):
            place = replace(place, held=reply.head.version)
            if "standing" in reply.body:
                self._standing = Standing.from_json(reply.body["standing"])
        if message.head.op is Op.BEGIN_PASS:
            place = replace(place, begun=message.body["pass"], ended=message.body["pass"] - 1)
        elif message.head.op is Op.END_PASS:
            ended = max(place.ended, message.body["pass"])
            place = replace(place, begun=ended, ended=ended)
        if "at" in message.body:
            self._progress.note(Position.from_json(message.body["at"]))
        self._offer = replace(place, seen=reply.head.version, seq=message.head.seq)

    # --- Another process is the server -------------------------------------------------------------------------------
    def redirect(self, address: str, incarnation: int) -> None:
        """Another process is this server now. It is told at once what this trainer holds, for others may wait for
        that while this one computes. From any thread."""
        self._client.redirect(address, incarnation)
        self._redirected.set()
        if self._declaration is not None:
            threading.Thread(target=self._rejoin_meanwhile, name="rejoin", daemon=True).start()

    def _rejoin_meanwhile(self) -> None:
        """What goes wrong here goes wrong again for the next request, which tells it."""
        with self._using, contextlib.suppress(RegattaError):
            self._rejoin()

    def _rejoin(self) -> None:
        """Offer what this trainer has to the process that is the server now, unless it has been told already."""
        self._strange = self._strange or self._client.moved
        if not self._strange or self._declaration is None:
            return
        self._client.follow()
        place = {"offer": asdict(self._offer), "had": self._progress.to_json()}
        body = {"declaration": self._declaration.to_json(), **place}
        self._answered(self._client.request(Op.RESEED_OFFER, body), self._declaration)
        self._strange = False

    def _await_another(self, error: Lost | Refused, patience: _Patience) -> None:
        """After an answer that does not count: wait a moment for the news. Raises where waiting is of no use."""
        if isinstance(error, Refused) and error.code == Outcome.LOST:
            raise Lost(error.why) from error
        if isinstance(error, Refused) and error.code not in _TRY_AGAIN:
            raise error
        self._client.close()
        if patience.is_over():
            raise Lost(f"{error} No process has taken its place for {self._patience:g} s.") from error
        self._client.check_leaving()
        if not self._client.moved:
            self._redirected.wait(LOOK_SECONDS)
        self._redirected.clear()

    # --- Blocks ------------------------------------------------------------------------------------------------------
    def _pieces(self, arrays: Sequence[Array]) -> Sequence[Array]:
        """The blocks of this server, cut out of flat arrays of all parameters."""
        return [place.of(arrays) for place in self._places] if len(arrays) else ()

    def _gradients(self, arrays: Sequence[Array]) -> Sequence[Block]:
        """The blocks of this server out of the gradients of all parameters, in the form in which they travel."""
        pieces = self._pieces(arrays)
        return self._blocks(
            [
                piece if feedback is None else feedback.narrow(piece)
                for piece, feedback in zip(pieces, self._feedback, strict=bool(len(pieces)))
            ]
        )

    def _blocks(self, arrays: Sequence[Array]) -> Sequence[Block]:
        return [block(place, array) for place, array in zip(self._places, arrays, strict=bool(len(arrays)))]

    def _memory(self, header: Header) -> memoryview:
        if parcels.carries_rows(header):
            return parcels.room(header)
        self._offer = replace(self._offer, held=NOTHING)  # until the last block is here they are of two versions
        return self._memories[header.tensor, header.offset]


class _Patience:
    """How long a server may be gone: ``seconds`` from the first failure. An attempt that takes longer than silence is
    borne has heard of the server meanwhile."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._began = time.monotonic()
        self._give_up: float | None = None

    def begin(self) -> None:
        """Another attempt."""
        self._began = time.monotonic()

    def is_over(self) -> bool:
        """Asked after each failure."""
        now = time.monotonic()
        if self._give_up is None or now - self._began > 2 * DEADLINE_SECONDS:
            self._give_up = now + self._seconds
        return now >= self._give_up


def _is_float32(values: Sequence[Array], place: BlockPlace) -> bool:
    return values[place.tensor].dtype == np.float32
