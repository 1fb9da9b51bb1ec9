"""The client: it sends requests to a server and waits for replies.

A request whose reply was lost is sent again with the same number.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from runtime.errors import Leaving, Lost, Refused, RegattaError, WireError
from runtime.messages import from_json
from runtime.protocol.concurrent_exchange import Exchange
from runtime.protocol.connection import (
    Allocate,
    Arrived,
    Began,
    Block,
    Closed,
    Connection,
    Message,
    refuse_blocks,
)
from runtime.protocol.frames import Header, Op
from runtime.protocol.proof import Claim, Unproven
from runtime.protocol.retry_policy import Failure, RetryPolicy, failure_of

# A server that sends nothing for this long counts as lost. A server that needs longer sends WAIT.
DEADLINE_SECONDS = 15.0
# How long a host may be silent before a new try: meanwhile the server may have started elsewhere.
CONNECT_SECONDS = 2.0


class Moved(Lost):
    """Another process is the server now: call ``follow`` and repeat the request."""


class Client:
    """One connection to one server, opened when needed. Not for two threads at once.

    ``name`` is the server's name in error messages ("parameter server 1"). Requests carry ``incarnation`` (the
    sender's) and increasing numbers, so that the server applies each of them once however often it arrives.
    """

    def __init__(
        self,
        address: str,
        *,
        name: str = "server",
        job: int = 0,
        shard: int = 0,
        incarnation: int = 0,
        expected: int = 0,
        deadline: float = DEADLINE_SECONDS,
        leaving: Callable[[], bool] = lambda: False,
        secret: bytes = b"",
    ) -> None:
        """``secret`` is the attempt's: both ends of a connection prove that they hold it. If empty, neither does."""
        self._address = address
        self.secret = secret
        self._name = name
        self._head = Header(Op.HELLO, job=job, shard=shard, incarnation=incarnation, expected=expected)
        self._numbers = itertools.count(1)
        self._deadline = deadline
        self._leaving = leaving
        self._connection: Connection | None = None
        self._next: tuple[str, int] | None = None  # address and incarnation of the new server process

    def redirect(self, address: str, incarnation: int) -> None:
        """Another process is the server now: requests that wait for the old one raise Moved. From any thread."""
        self._next = (address, incarnation)

    @property
    def moved(self) -> bool:
        """Whether ``redirect`` has named a new process."""
        return self._next is not None

    def follow(self) -> None:
        """Send requests to the process that ``redirect`` named from now on. Request numbers continue."""
        if self._next is None:
            return
        (address, incarnation), self._next = self._next, None
        self.close()
        self._address = address
        self._head = self._head._replace(expected=incarnation)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def call(self, op: Op, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send a request with a JSON body; return the reply's. Raises Refused, Lost, Leaving, WireError."""
        return dict(self.request(op, body).body)

    def request(
        self,
        op: Op,
        body: Mapping[str, Any] | None = None,
        blocks: Sequence[Block] = (),
        allocate: Allocate = refuse_blocks,
        version: int = 0,
    ) -> Message:
        """Send one message and wait for its reply, again after a broken connection, until the deadline."""
        message = self.prepare(op, body, blocks, version)
        self.send(message)
        return self.reply(message, allocate)

    # --- The two halves of a request, for callers that ask several servers at once -----------------------------------
    def prepare(
        self, op: Op, body: Mapping[str, Any] | None = None, blocks: Sequence[Block] = (), version: int = 0
    ) -> Message:
        """Number a request. ``version`` is the sender's last known version of the shard."""
        head = self._head._replace(op=op, seq=next(self._numbers), version=version)
        return Message(head, body or {}, blocks)

    def send_blocks(self, op: Op, blocks: Sequence[Block]) -> None:
        """Send blocks that are not answered. They may be lost: the request that builds on them detects it."""
        self.send(Message(self._head._replace(op=op), {}, blocks))

    def notify(self, op: Op, body: Mapping[str, Any]) -> bool:
        """Send a message that is not answered, as ``Connection.leave`` does; return whether it was accepted.

        It is lost if this process ends while an answer that it has not read waits. So notices need a client of their
        own, without requests, which any thread connects by ``connect``.
        """
        connection = self._connection
        if connection is None:
            return False
        left = connection.leave(Message(self._head._replace(op=op), body))
        if not left:
            self.close()
        return left

    def connect(self) -> None:
        """Connect, unless connected already. A failure is ignored."""
        with contextlib.suppress(OSError, RegattaError):
            self._connect()

    def send(self, message: Message) -> None:
        """Send a request. After a failure, ``reply`` tries again."""
        message = self._addressed(message)
        with contextlib.suppress(RegattaError, ConnectionError):
            self._connect().send(message, self._deadline)
            return
        self.close()

    def exchange(
        self,
        message: Message,
        allocate: Allocate,
        began: Began = lambda head, body: None,
        arrived: Arrived = lambda header: None,
    ) -> Exchange | None:
        """Start a request that runs concurrently with those to other servers, by ``concurrent_exchange.converse``.

        ``reply`` then returns its result. Returns None without a connection: ``reply`` tries again.
        """
        message = self._addressed(message)
        try:
            is_reply = partial(self._is_reply, message)
            return Exchange(self._connect(), message, is_reply, self._deadline, allocate, began, arrived)
        except (OSError, RegattaError):
            self.close()
            return None

    @property
    def local(self) -> bool:
        """Whether the server is known to have this host's address."""
        return self._connection is not None and self._connection.local

    def reply(self, message: Message, allocate: Allocate = refuse_blocks, exchange: Exchange | None = None) -> Message:
        """Wait for the reply to ``message``, which ``send`` has sent, or to ``exchange``. Retries by ``RetryPolicy``.

        A copy of the request that a broken connection delayed may overtake the current one. The server then refuses the
        current one as superseded, and answers on the closed connection, so the request is repeated too. Raises as
        ``call`` does, and Moved.
        """
        message = self._addressed(message)
        policy = RetryPolicy(self._deadline)
        while True:
            try:
                if exchange is not None:
                    over, exchange = exchange, None
                    return self._result(over)
                if self._connection is None:
                    self._connect().send(message, self._deadline)
                return self._receive(message, allocate)
            except (RegattaError, ConnectionError) as error:
                why, failure = error, failure_of(error)
                if failure is Failure.FINAL:
                    raise
                if failure is Failure.STOPPED:
                    if self.moved and not self._leaving():
                        raise self._gone() from error
                    raise
                if failure is Failure.SILENT:
                    self.close()
                    raise Lost(f"The {self._name} has not answered for {self._deadline:g} s.") from error
            self.close()
            if policy.is_incompatible(failure):
                raise why
            if (pause := policy.next_pause()) is None:
                raise Lost(f"The {self._name} is gone ({why}); this process has to start again.") from why
            self._pause(pause)

    def _addressed(self, message: Message) -> Message:
        return Message(message.head._replace(expected=self._head.expected), message.body, message.blocks)

    def _should_stop(self) -> bool:
        return self.moved or self._leaving()

    def _gone(self) -> Moved:
        return Moved(f"Another process is the {self._name} now.")

    def _connect(self) -> Connection:
        if self._connection is None:
            host, _colon, port = self._address.rpartition(":")
            try:
                link = socket.create_connection((host, int(port)), timeout=min(CONNECT_SECONDS, self._deadline))
                connection = Connection(link, self._should_stop)
            except OSError as error:
                # A lost host refuses nothing: it is silent, or the network has no route to it.
                raise Closed(str(error)) from error
            if self.secret:
                self._prove(connection)
            self._connection = connection
        return self._connection

    def _prove(self, connection: Connection) -> None:
        """Verify the server's proof, then send this client's.

        Raises WireError, Refused, Leaving, and then closes the connection. Raises Closed if the server has no proof:
        another process may have taken the port of a lost server.
        """
        claim = Claim(self.secret, self._address)
        try:
            connection.send(Message(self._head, claim.hello()), self._deadline)
            answer = connection.receive(self._deadline)
            self._is_reply(Message(self._head), answer)
            connection.send(Message(self._head, claim.prove(answer.body)), self._deadline)
        except Unproven as error:
            connection.close()
            raise Closed(str(error)) from error
        except RegattaError:
            connection.close()
            raise

    def _receive(self, message: Message, allocate: Allocate) -> Message:
        while True:
            answer = self._connect().receive(self._deadline, allocate)
            if self._is_reply(message, answer):
                return answer

    def _is_reply(self, message: Message, answer: Message) -> bool:
        """Whether the answer is the reply to ``message``, or else one that precedes it. Raises Refused, WireError."""
        if answer.head.op is Op.WAIT:
            return False
        if answer.head.error:
            raise Refused(str(answer.body.get("code")), from_json(answer.body.get("why", "")))
        if answer.head.seq != message.head.seq:
            raise WireError(f"The {self._name} answered request {answer.head.seq}, {message.head.seq} was asked.")
        return answer.head.op is not Op.AHEAD

    def _result(self, exchange: Exchange) -> Message:
        if not exchange.sent:
            self.close()  # the answer came before the whole request was sent: the rest would count as the next request
        return exchange.result()

    def check_leaving(self) -> None:
        """Raises Leaving if this process should end instead of waiting for the server."""
        if self._leaving():
            raise Leaving(f"This process was asked to end while it looked for the {self._name}.")

    def _pause(self, seconds: float) -> None:
        self.check_leaving()
        if self.moved:
            raise self._gone()
        time.sleep(seconds)
