"""The connection of a trainer to one parameter server: numbers in shared memory, or as blocks over the socket."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.checkpoint.data_position import Position, Progress
from runtime.errors import Lost, Refused, RegattaError
from runtime.messages import paragraph
from runtime.messages import training as messages
from runtime.parameters import row_blocks
from runtime.parameters.array_blocks import block
from runtime.parameters.declaration import BlockPlace, Declaration
from runtime.parameters.messages import NOTHING, Offer, Outcome, Standing
from runtime.parameters.sharding import BLOCK_BYTES
from runtime.protocol.bf16 import Feedback
from runtime.protocol.client import DEADLINE_SECONDS, Client
from runtime.protocol.concurrent_exchange import Exchange
from runtime.protocol.connection import Block, Message
from runtime.protocol.frames import Header, Op
from runtime.protocol.shared_memory import NOT_SHARED, Handover
from runtime.trainer.gradient_staging import Staging
from runtime.trainer.mapped_parameters import Source
from runtime.trainer.memory_window import Window
from runtime.trainer.receive_buffer import Aside

Array = NDArray[Any]

# A lost server is started again, and has its values back, within this time.
PATIENCE_SECONDS = 90.0
LOOK_SECONDS = 0.2
# How often parameters are copied from the server's memory before it is asked to send them.
COPIES = 4
# Between hosts, and over a slower connection than this, blocks are requested as soon as they are made, while gradients
# are still being sent, and buffered until they count. On one host both directions are the work of the same processors:
# there the copy from the buffer costs more than it saves.
SLOW_BYTES_PER_SECOND = 80e6
# The operations that send or fetch numbers.
_BULKY = (Op.PUSH, Op.PUSH_PULL, Op.PULL)
# Answers of a process that is not this server, or no longer.
_TRY_AGAIN = ("not_owner",)
# Requests after which versions may be made while this trainer has the values of an earlier one.
_LEAVES_VALUES = (Op.PUSH, Op.END_PASS)


class Link:
    """One server from a trainer's point of view.

    ``places`` are its blocks, ``values`` the flat parameters that pulls fill.

    A server of this host reads the gradients where they are staged, and this link reads the parameters from the
    server's memory. They are copied, or shown in a ``window`` from which the values are cut. When the connection breaks
    the server drops the memory. The unanswered request then goes over the socket as blocks, where a repetition is
    applied once, and memory is shared again with the next request. ``halved``: float32 gradients are sent over the
    socket as bfloat16 with error feedback, and updates are returned in the same way if the server can; initial values
    are exact.

    A lost server is waited for. The link offers its values to the process that takes the server's place, and repeats
    the unanswered request with the same number.
    """

    def __init__(
        self,
        client: Client,
        places: Sequence[BlockPlace],
        values: Sequence[Array],
        halved: bool = False,
        patience: float = PATIENCE_SECONDS,
        window: Window | None = None,
    ) -> None:
        self._client = client
        self._places = places
        self._feedback = [Feedback() if halved and _is_float32(values, place) else None for place in places]
        self._halved = any(self._feedback)
        self._values = self._pieces(values)
        self._memories = {
            (place.tensor, place.block): value.data.cast("B") for place, value in zip(places, self._values, strict=True)
        }
        self._patience = patience
        self._staging: Staging | None = None  # the gradients for a server that shares memory
        self._source = Source(places, self._values, window)
        self._declaration: Declaration | None = None  # set once the server has it
        self._aside: Aside | None = None  # memory for blocks that do not count yet
        self._slow = True  # until the transfer rate is known
        self.exchange: Exchange | None = None  # the exchange that runs concurrently with those of other servers
        self._asked: Sequence[Array] = ()  # gradients of the unanswered request
        self._ahead: dict[int, Block] = {}  # blocks of the next push already sent, by their number here
        self._numbers: Sequence[Block] = ()  # all blocks of the unanswered request, in the form in which they are sent
        self._offer = Offer()  # this trainer's position, by the answered requests
        self._standing = Standing()  # what the values that it holds contain
        self._progress = Progress()  # of the data, by this trainer
        self._using = threading.Lock()  # held from a request to its answer
        self._acting = threading.Lock()  # held by the thread that uses the connection; acquired after ``_using``
        self._unanswered: Message | None = None  # the request whose answer is due
        self._finished: Message | RegattaError | None = None  # its answer, or an error
        self._redirected = threading.Event()
        self._offer_due = False  # whether the present server process has not received this trainer's offer

    def start(self, declaration: Declaration) -> None:
        """Declare, and send the initial values if the server requests them. Raises Lost, Leaving."""
        patience = _Patience(self._patience)
        while self._declaration is None:
            try:
                self._client.follow()
                self._answered(self._client.request(Op.DECLARE, declaration.to_json()), declaration)
                self._declaration = declaration
            except (Lost, Refused) as error:
                self._await_another(error, patience)

    def _answered(self, reply: Message, declaration: Declaration) -> None:
        """Send what the answer to a declaration or an offer requests."""
        outcome = reply.body["outcome"]
        if outcome == Outcome.INITIALISE:
            self._client.request(Op.INIT, {"digest": declaration.digest}, self._blocks(self._values))
            self._offer = replace(self._offer, held=0)
        elif outcome == Outcome.RESEED:
            body = {"standing": self._standing.to_json()}
            self._client.request(Op.RESEED, body, self._blocks(self._values), version=self._offer.held)
        self._open_source()

    # --- Memory ------------------------------------------------------------------------------------------------------
    def share(self, staging: Staging) -> bool:
        """Share memory with the server, if possible; return whether every gradient must be staged from now on."""
        self._staging = staging
        self._open_source()
        return self._staging is not None

    def _open_source(self) -> None:
        """Have the server map the gradients, and receive the descriptor of its parameters."""
        self._source.drop()
        if self._staging is None:
            return
        with contextlib.suppress(OSError, ValueError), contextlib.closing(Handover(self._client.secret)) as handover:
            body = {**self._staging.where, "handover": handover.name, "journal": self._source.wants_journal}
            try:
                answer = self._client.call(Op.SHARE, body)
            except (Lost, Refused):
                return  # the next request raises the error
            if answer["shared"]:
                self._source.adopt(handover.collect(), bool(answer.get("journal")))
                return
        self._staging = None

    def _with_values(self, reply: Message) -> Message:
        """Copy the parameters that a reply announced; return the reply with their version.

        In synchronous training the next version waits for this trainer, and the first copy is consistent. If others
        push meanwhile it may not be; in the end the server sends a copy that it makes between two updates.
        """
        for _ in range(COPIES):
            if self._copied(reply.head.version):
                return reply
            reply = self._client.request(Op.PULL, {"shared": True})
        return self._client.request(Op.PULL, allocate=self._memory)

    def _copied(self, version: int) -> bool:
        """Copy the parameters from the server's memory; return whether they were those of ``version`` all the time."""
        begun, ended = self._offer.begun, self._offer.ended
        self._offer = replace(self._offer, held=NOTHING)  # an incomplete copy may be of two versions
        return self._source.read(version, waited_for=begun > ended)

    def _keep(self) -> None:
        """Make the values private to this process: the server's memory may change."""
        if not self._source.keep(self._offer.held):
            self._offer = replace(self._offer, held=NOTHING)

    # --- Ahead of a push ---------------------------------------------------------------------------------------------
    def stage(self, number: int, gradient: Array) -> None:
        """Send this server's part of the gradient of parameter ``number`` ahead of its push. From any thread.

        With shared memory there is nothing to send. Lost blocks are sent with the push.
        """
        with self._using, self._acting:
            if self._source.there or self._offer_due or self._client.moved:
                return
            self._forget_ahead(number)
            mine = [(at, place) for at, place in enumerate(self._places) if place.tensor == number]
            blocks = {at: self._narrowed(at, gradient[place.start : place.stop]) for at, place in mine}
            if blocks:
                self._client.send_blocks(Op.STAGE, list(blocks.values()))
                self._ahead |= blocks

    def unstage(self, number: int) -> None:
        """Drop what was sent ahead of parameter ``number``: another gradient will be pushed."""
        with self._using, self._acting:
            self._forget_ahead(number)

    def _forget_ahead(self, number: int | None = None) -> None:
        """Drop the blocks of one parameter, or of all."""
        for at in [at for at, one in self._ahead.items() if number in (None, one[0].tensor)]:
            del self._ahead[at]
            if (feedback := self._feedback[at]) is not None:
                feedback.take_back()

    # --- One request -------------------------------------------------------------------------------------------------
    def ask(
        self,
        op: Op,
        body: Mapping[str, Any],
        gradients: Sequence[Array] = (),
        version: int = 0,
        rows: Sequence[Block] = (),
    ) -> Message:
        """Send a request; ``answer`` waits for the reply and must be called before the next request.

        ``gradients`` are those of all parameters, flat; ``rows`` are blocks of tables, which always go over the socket.
        """
        self._using.acquire()
        try:
            with self._acting:
                return self._ask(op, body, gradients, version, rows)
        except BaseException:
            self._using.release()
            raise

    def _ask(
        self, op: Op, body: Mapping[str, Any], gradients: Sequence[Array], version: int, rows: Sequence[Block]
    ) -> Message:
        if not self._source.there:
            self._open_source()
        if op in _LEAVES_VALUES:
            self._keep()
        self._asked = gradients
        fields, blocks = self._numbers_of(op, gradients)
        message = self._client.prepare(op, {**body, **fields}, [*blocks, *rows], version)
        self.exchange = None if self._source.there or op not in _BULKY else self._exchange(message)
        if self.exchange is None:
            self._client.send(message)
        self._unanswered, self._finished = message, None
        return message

    def _numbers_of(self, op: Op, gradients: Sequence[Array]) -> tuple[Mapping[str, Any], Sequence[Block]]:
        """The fields of a request for its numbers, and the blocks that have not been sent ahead."""
        shared = self._source.there
        fields = {"shared": True} if shared else {}
        self._numbers = ()
        if op not in (Op.PUSH, Op.PUSH_PULL):
            return fields, ()
        if shared or not len(gradients):
            self._forget_ahead()
            return fields, ()
        ahead, self._ahead = self._ahead, {}
        pieces = enumerate(self._pieces(gradients))
        self._numbers = [ahead[at] if at in ahead else self._narrowed(at, piece) for at, piece in pieces]
        fields = {name: True for name, is_so in (("staged", ahead), ("halved", self._halved)) if is_so}
        return fields, [one for at, one in enumerate(self._numbers) if at not in ahead]

    def _exchange(self, message: Message) -> Exchange | None:
        """A request that sends or fetches numbers, for ``concurrent_exchange.converse``."""
        if self._aside is not None:
            self._aside.used = False
        if self._client.moved or self._offer_due:
            return None  # this trainer's offer is sent first
        ahead = len(self._places) > 1 and (self._slow or not self._client.local)
        if message.head.op is not Op.PUSH_PULL or not (ahead or self._halved):
            return self._client.exchange(message, self._memory)
        if self._aside is None:
            self._aside = Aside(self._places, self._values)
        update = self._halved and self._aside.version == message.head.version
        prepared = Message(message.head, {**message.body, "ahead": ahead, "update": update}, message.blocks)
        return self._client.exchange(prepared, self._aside.memory, self._aside.began, self._aside.arrived)

    def answer(self, message: Message) -> Message:
        """Return the reply; values that came with it are in place. Raises Refused, Lost, Leaving."""
        try:
            with self._acting:
                self._finish()
                finished, self._finished = self._finished, None
            if isinstance(finished, RegattaError):
                raise finished
            assert finished is not None, "an answer is read once"  # noqa: S101
            return finished
        finally:
            self._using.release()

    def _finish(self) -> None:
        """Wait for the answer that is due, unless it is here already."""
        if (message := self._unanswered) is None:
            return
        try:
            reply = self._insist(message)
            self._note(message, reply)
            self._finished = reply
        except RegattaError as error:
            self._finished = error
        self._unanswered = None

    def _insist(self, message: Message) -> Message:
        """Wait for the reply, from any process that is the server."""
        patience = _Patience(self._patience)
        exchange, self.exchange = self.exchange, None
        while True:
            try:
                patience.begin()
                if exchange is None and (self._client.moved or self._offer_due):
                    self._rejoin()
                    message = self._again(message)
                return self._receive(message, exchange)
            except (Lost, Refused) as error:
                exchange = None
                self._await_another(error, patience)

    def _receive(self, message: Message, exchange: Exchange | None) -> Message:
        try:
            reply = self._client.reply(message, self._memory, exchange)
            if exchange is not None and exchange.has_brought(reply):
                reply = self._settled(message, reply, exchange)
            return self._with_values(reply) if reply.body.get("values") and message.body.get("shared") else reply
        except Refused as refused:
            if refused.code != NOT_SHARED:
                raise
            self._keep()
            self._source.drop()
            return self._client.reply(self._again(message), self._memory)

    def _settled(self, message: Message, reply: Message, exchange: Exchange) -> Message:
        """Measure the transfer rate, and take the buffered values; return the reply with the rest."""
        up, down = (sum(payload.nbytes for _header, payload in one.blocks) for one in (message, reply))
        aside = self._aside if self._aside is not None and self._aside.used else None
        if aside is not None and "ahead" in reply.body:
            up, down = max(up, aside.nbytes >> bool(reply.body.get("update"))), 0  # both directions at once
        if up + down >= BLOCK_BYTES:
            self._slow = up + down < SLOW_BYTES_PER_SECOND * exchange.seconds
        if aside is None or not reply.body.get("values"):
            return reply
        self._keep()
        self._offer = replace(self._offer, held=NOTHING)  # an incomplete copy is of two versions
        if aside.take(reply, self._values):
            return reply
        return self._client.reply(self._again(message), self._memory)

    def _again(self, message: Message) -> Message:
        """Repeat the request over the socket. Numbers that were sent there keep their form."""
        rows = [one for one in message.blocks if row_blocks.carries_rows(one[0])]
        self._numbers = self._numbers or self._gradients(self._asked)
        body = {**message.body, "shared": False, "staged": False}
        message = Message(message.head, body, [*self._numbers, *rows])
        self._client.send(message)
        return message

    def _note(self, message: Message, reply: Message) -> None:
        """Update this trainer's position with the server."""
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

    # --- A replaced server --------------------------------------------------------------------------------------------
    def redirect(self, address: str, incarnation: int) -> None:
        """Another process is this server now. From any thread.

        The offer is sent at once, because others may wait for it while this trainer computes.
        """
        self._client.redirect(address, incarnation)
        self._redirected.set()
        if self._declaration is not None:
            threading.Thread(target=self._rejoin_meanwhile, name="rejoin", daemon=True).start()

    def _rejoin_meanwhile(self) -> None:
        """Send this trainer's offer, even while it waits for the answer of another server.

        That answer may depend on this offer: the other server waits for a trainer that waits for this server, which
        waits for the offers of all trainers. The unanswered request of this server is finished first. An error of the
        offer occurs again with the next request, which raises it.
        """
        while (exchange := self.exchange) is not None and not exchange.left:
            time.sleep(LOOK_SECONDS)  # ``converse`` still uses the connection
        with self._acting, contextlib.suppress(RegattaError):
            self._finish()
            self._rejoin()

    def _rejoin(self) -> None:
        """Send this trainer's offer to the present server process, unless it has it already."""
        self._offer_due = self._offer_due or self._client.moved
        if not self._offer_due or self._declaration is None:
            return
        self._client.follow()
        self._keep()
        if self._aside is not None:
            self._aside.version = NOTHING  # the server may have the values of another trainer now
        place = {"offer": asdict(self._offer), "had": self._progress.to_json()}
        body = {"declaration": self._declaration.to_json(), **place}
        self._answered(self._client.request(Op.RESEED_OFFER, body), self._declaration)
        self._offer_due = False

    def _await_another(self, error: Lost | Refused, patience: _Patience) -> None:
        """Wait a moment for a new server process after a failed request. Raises if waiting is useless."""
        if isinstance(error, Refused) and error.code == Outcome.LOST:
            raise Lost(error.why) from error
        if isinstance(error, Refused) and error.code not in _TRY_AGAIN:
            raise error
        self._client.close()
        if patience.is_over():
            raise Lost(paragraph(error, messages.NOT_REPLACED_IN_TIME(seconds=f"{self._patience:g}"))) from error
        self._client.check_leaving()
        if not self._client.moved:
            self._redirected.wait(LOOK_SECONDS)
        self._redirected.clear()

    # --- Blocks ------------------------------------------------------------------------------------------------------
    def _pieces(self, arrays: Sequence[Array]) -> Sequence[Array]:
        """The blocks of this server, cut from flat arrays of all parameters."""
        return [place.of(arrays) for place in self._places] if len(arrays) else ()

    def _gradients(self, arrays: Sequence[Array]) -> Sequence[Block]:
        """The blocks of this server from the gradients of all parameters, in the form in which they are sent."""
        return [self._narrowed(at, piece) for at, piece in enumerate(self._pieces(arrays))]

    def _narrowed(self, at: int, piece: Array) -> Block:
        """A block of a gradient in the form in which it is sent."""
        feedback = self._feedback[at]
        return block(self._places[at], piece if feedback is None else feedback.narrow(piece))

    def _blocks(self, arrays: Sequence[Array]) -> Sequence[Block]:
        return [block(place, array) for place, array in zip(self._places, arrays, strict=bool(len(arrays)))]

    def _memory(self, header: Header) -> memoryview:
        if row_blocks.carries_rows(header):
            return row_blocks.allocate(header)
        self._keep()
        self._offer = replace(self._offer, held=NOTHING)  # until the last block has arrived they are of two versions
        return self._memories[header.tensor, header.offset]


class _Patience:
    """How long a server may be lost: ``seconds`` from the first failure.

    An attempt that takes longer than the silence limit has received something from the server meanwhile.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._began = time.monotonic()
        self._give_up: float | None = None

    def begin(self) -> None:
        """Begin another attempt."""
        self._began = time.monotonic()

    def is_over(self) -> bool:
        """Whether to give up; called after each failure."""
        now = time.monotonic()
        if self._give_up is None or now - self._began > 2 * DEADLINE_SECONDS:
            self._give_up = now + self._seconds
        return now >= self._give_up


def _is_float32(values: Sequence[Array], place: BlockPlace) -> bool:
    return values[place.tensor].dtype == np.float32
