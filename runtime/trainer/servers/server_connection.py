"""The connection of a trainer to one parameter server: requests, retries, and the change to a new server process."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from runtime.errors import Lost, Refused, RegattaError
from runtime.messages import paragraph
from runtime.messages import training as messages
from runtime.parameters.declaration import BlockPlace, Declaration
from runtime.parameters.messages import Outcome
from runtime.protocol.client import DEADLINE_SECONDS, Client
from runtime.protocol.concurrent_exchange import Exchange
from runtime.protocol.connection import Block, Message
from runtime.protocol.frames import Op
from runtime.protocol.shared_memory import NOT_SHARED
from runtime.trainer.servers.gradient_staging import Staging
from runtime.trainer.servers.held_values import HeldValues
from runtime.trainer.servers.memory_window import Window
from runtime.trainer.servers.rejoin_state import RejoinState
from runtime.trainer.servers.shared_memory_transport import SharedMemoryTransport
from runtime.trainer.servers.socket_transport import SocketTransport

Array = NDArray[Any]

# A lost server is started again, and has its values back, within this time.
PATIENCE_SECONDS = 90.0
LOOK_SECONDS = 0.2
# The operations that send gradients, and those that send or fetch numbers.
_PUSHES = (Op.PUSH, Op.PUSH_PULL)
_BULKY = (*_PUSHES, Op.PULL)
# Answers of a process that is not this server, or no longer.
_TRY_AGAIN = ("not_owner",)
# Requests after which versions may be made while this trainer has the values of an earlier one.
_LEAVES_VALUES = (Op.PUSH, Op.END_PASS)


class ServerConnection:
    """One server from a trainer's point of view: one request at a time, each of which counts once.

    ``places`` are its blocks, ``values`` the flat parameters that pulls fill, in a ``window`` if they can be mapped.
    Numbers are transferred in shared memory where it can be shared, else as blocks over the socket (``halved``: see
    ``SocketTransport``). When the connection breaks, the unanswered request goes over the socket, where a repetition is
    applied once, and memory is shared again with the next request.

    A lost server is waited for. The connection offers its values to the process that takes the server's place, and
    repeats the unanswered request with the same number.
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
        self._patience = patience
        self._values = HeldValues(places, values, window)
        self._shared_memory = SharedMemoryTransport(client, self._values)
        self._socket = SocketTransport(client, self._values, halved)
        self._state = RejoinState()
        self._declaration: Declaration | None = None  # set once the server has it
        self.exchange: Exchange | None = None  # the exchange that runs concurrently with those of other servers
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
                self._send_values(self._client.request(Op.DECLARE, declaration.to_json()), declaration)
                self._declaration = declaration
            except (Lost, Refused) as error:
                self._await_another(error, patience)

    def _send_values(self, reply: Message, declaration: Declaration) -> None:
        """Send the values that the answer to a declaration or an offer requests, and share memory."""
        outcome = reply.body["outcome"]
        if outcome == Outcome.INITIALISE:
            self._client.request(Op.INIT, {"digest": declaration.digest}, self._values.to_blocks())
            self._values.version = 0
        elif outcome == Outcome.RESEED:
            fields, version = self._state.reseed_fields(), self._values.version
            self._client.request(Op.RESEED, fields, self._values.to_blocks(), version=version)
        self._shared_memory.open()

    def share(self, staging: Staging) -> bool:
        """Share memory with the server, if possible; return whether every gradient must be staged from now on."""
        return self._shared_memory.share(staging)

    # --- Ahead of a push ---------------------------------------------------------------------------------------------
    def stage(self, number: int, gradient: Array) -> None:
        """Send this server's part of the gradient of parameter ``number`` ahead of its push. From any thread.

        With shared memory there is nothing to send. Lost blocks are sent with the push.
        """
        with self._using, self._acting:
            if not (self._shared_memory.is_open or self._offer_due or self._client.moved):
                self._socket.stage(number, gradient)

    def unstage(self, number: int) -> None:
        """Drop what was sent ahead of parameter ``number``: another gradient will be pushed."""
        with self._using, self._acting:
            self._socket.unstage(number)

    # --- One request -------------------------------------------------------------------------------------------------
    def send(
        self,
        op: Op,
        body: Mapping[str, Any],
        gradients: Sequence[Array] = (),
        version: int = 0,
        rows: Sequence[Block] = (),
    ) -> Message:
        """Send a request; ``reply`` waits for the reply and must be called before the next request.

        ``gradients`` are those of all parameters, flat; ``rows`` are blocks of tables, which always go over the socket.
        """
        self._using.acquire()
        try:
            with self._acting:
                return self._send(op, body, gradients, version, rows)
        except BaseException:
            self._using.release()
            raise

    def _send(
        self, op: Op, body: Mapping[str, Any], gradients: Sequence[Array], version: int, rows: Sequence[Block]
    ) -> Message:
        if not self._shared_memory.is_open:
            self._shared_memory.open()
        if op in _LEAVES_VALUES:
            self._values.keep()
        shared = self._shared_memory.is_open
        fields, blocks = self._numbers(op, gradients, shared)
        message = self._client.prepare(op, {**body, **fields}, [*blocks, *rows], version)
        concurrent = op in _BULKY and not (shared or self._client.moved or self._offer_due)  # an offer is sent first
        self.exchange = self._socket.exchange(message) if concurrent else None
        if self.exchange is None:
            self._client.send(message)
        self._unanswered, self._finished = message, None
        return message

    def _numbers(self, op: Op, gradients: Sequence[Array], shared: bool) -> tuple[Mapping[str, Any], Sequence[Block]]:
        """The fields of a request for its numbers, and the blocks to send with it."""
        self._socket.begin(gradients)
        if op in _PUSHES:
            if not shared and len(gradients):
                return self._socket.make_blocks()
            self._socket.unstage()
        return ({"shared": True} if shared else {}), ()

    def reply(self, message: Message) -> Message:
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
            reply = self._await_reply(message)
            self._state.record(message, reply)
            if reply.body.get("values"):
                self._values.version = reply.head.version
            self._finished = reply
        except RegattaError as error:
            self._finished = error
        self._unanswered = None

    def _await_reply(self, message: Message) -> Message:
        """Wait for the reply, from any process that is the server."""
        patience = _Patience(self._patience)
        exchange, self.exchange = self.exchange, None
        while True:
            try:
                patience.begin()
                if exchange is None and (self._client.moved or self._offer_due):
                    self._rejoin()
                    message = self._socket.repeat(message)
                return self._receive(message, exchange)
            except (Lost, Refused) as error:
                exchange = None
                self._await_another(error, patience)

    def _receive(self, message: Message, exchange: Exchange | None) -> Message:
        """Wait for the reply of the present process, and put its values in place."""
        try:
            reply = self._client.reply(message, self._values.allocate, exchange)
            if exchange is not None and exchange.has_brought(reply):
                reply = self._socket.settle(message, reply, exchange)
            if reply.body.get("values") and message.body.get("shared"):
                return self._shared_memory.read_values(reply, waited_for=self._state.is_in_pass)
            return reply
        except Refused as refused:
            if refused.code != NOT_SHARED:
                raise
            self._shared_memory.close()
            return self._client.reply(self._socket.repeat(message), self._values.allocate)

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
        self._values.keep()
        self._socket.forget_version()
        fields = self._state.offer_fields(self._declaration, self._values.version)
        self._send_values(self._client.request(Op.RESEED_OFFER, fields), self._declaration)
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
