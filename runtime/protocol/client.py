"""Asks a server and waits for the reply. A request whose reply was lost is sent again with the same number."""

from __future__ import annotations

import contextlib
import itertools
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from runtime.errors import Leaving, Lost, Refused, RegattaError, WireError
from runtime.protocol.concurrent_exchange import Talk
from runtime.protocol.connection import (
    Allocate,
    Arrived,
    Began,
    Block,
    Closed,
    Connection,
    DeadlinePassed,
    Message,
    refuse_blocks,
)
from runtime.protocol.frames import BAD_FRAME, SUPERSEDED, Header, Op
from runtime.protocol.proof import Claim, Unproven

# Without a word from the server for this long it counts as lost. A server that needs longer says WAIT.
DEADLINE_SECONDS = 15.0
# What is damaged on its way is sent again. Who cannot be understood so often speaks another language.
DAMAGES = 3
# How long a host may be silent before it is tried again: meanwhile the server may have begun elsewhere.
CONNECT_SECONDS = 2.0
BACK_OFF_SECONDS = (0.05, 0.1, 0.2, 0.4, 0.8)


class Moved(Lost):
    """Another process is the server now: ``follow`` it and ask again."""


class Client:
    """One connection to one server, opened when needed. Not for two threads at once.

    ``name`` is what error messages call the server ("parameter server 1"). Requests carry ``incarnation`` (the
    sender's) and rising numbers, so that the server applies each of them once however often it comes.
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
        """``secret`` is the attempt's: both ends of a connection prove that they hold it. Empty: neither does."""
        self._address = address
        self.secret = secret
        self._name = name
        self._head = Header(Op.HELLO, job=job, shard=shard, incarnation=incarnation, expected=expected)
        self._numbers = itertools.count(1)
        self._deadline = deadline
        self._leaving = leaving
        self._connection: Connection | None = None
        self._next: tuple[str, int] | None = None  # address and incarnation of the process that is the server now

    def redirect(self, address: str, incarnation: int) -> None:
        """Another process is the server now: what waits for the old one raises Moved. From any thread."""
        self._next = (address, incarnation)

    @property
    def moved(self) -> bool:
        """Whether ``follow`` has somewhere to go."""
        return self._next is not None

    def follow(self) -> None:
        """Ask the process that ``redirect`` named from now on. Numbers of requests go on."""
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
        """Ask with a JSON body and give the reply's. Raises Refused, Lost, Leaving, WireError."""
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
        """Number a request. ``version`` is what the sender last saw of the shard."""
        head = self._head._replace(op=op, seq=next(self._numbers), version=version)
        return Message(head, body or {}, blocks)

    def send_blocks(self, op: Op, blocks: Sequence[Block]) -> None:
        """Send what is not answered. It may be lost: the request that builds on it finds out."""
        self.send(Message(self._head._replace(op=op), {}, blocks))

    def notify(self, op: Op, body: Mapping[str, Any]) -> bool:
        """Have word go out that is not answered, as ``Connection.leave`` does; whether there is a connection for that.

        It is lost if this process is ended while an answer waits that it has not read: whoever leaves word does so over
        a client that asks nothing, and is connected by ``connect``, by any thread.
        """
        connection = self._connection
        if connection is None:
            return False
        left = connection.leave(Message(self._head._replace(op=op), body))
        if not left:
            self.close()
        return left

    def connect(self) -> None:
        """Connect, if it is not and can be."""
        with contextlib.suppress(OSError, RegattaError):
            self._connect()

    def send(self, message: Message) -> None:
        """Send a request; a failure shows in ``reply``, which tries again."""
        message = self._addressed(message)
        with contextlib.suppress(RegattaError, ConnectionError):
            self._connect().send(message, self._deadline)
            return
        self.close()

    def talk(
        self,
        message: Message,
        allocate: Allocate,
        began: Began = lambda head, body: None,
        arrived: Arrived = lambda header: None,
    ) -> Talk | None:
        """A request that is sent and answered beside those to other servers, by ``duplex.converse``.

        ``reply`` then gives what came of it. None where there is no connection: ``reply`` tries again.
        """
        message = self._addressed(message)
        try:
            is_reply = partial(self._is_reply, message)
            return Talk(self._connect(), message, is_reply, self._deadline, allocate, began, arrived)
        except (OSError, RegattaError):
            self.close()
            return None

    @property
    def local(self) -> bool:
        """Whether the server is known to have this host's address."""
        return self._connection is not None and self._connection.local

    def reply(self, message: Message, allocate: Allocate = refuse_blocks, talk: Talk | None = None) -> Message:
        """Wait for the reply to ``message``, which ``send`` has sent, or ``talk``. Asks again where either was damaged.

        A copy of the request that a broken connection held back may overtake the one that is waited for, which is then
        refused as superseded, and the answer goes to a connection that is gone: so it is asked again too.
        Raises as ``call`` does, and Moved.
        """
        message = self._addressed(message)
        give_up = time.monotonic() + self._deadline
        damages = 0
        for pause in itertools.chain(BACK_OFF_SECONDS, itertools.repeat(BACK_OFF_SECONDS[-1])):
            why: Exception
            try:
                if talk is not None:
                    over, talk = talk, None
                    return self._result(over)
                if self._connection is None:
                    self._connect().send(message, self._deadline)
                return self._receive(message, allocate)
            except (Closed, ConnectionError) as error:
                why = error
            except Leaving as leaving:
                if self.moved and not self._leaving():
                    raise self._gone() from leaving
                raise
            except DeadlinePassed as error:
                self.close()
                raise Lost(f"The {self._name} has not answered for {self._deadline:g} s.") from error
            except Refused as refused:
                if refused.code not in (BAD_FRAME, SUPERSEDED):
                    raise
                why, damages = refused, damages + (refused.code == BAD_FRAME)
            except WireError as error:
                why, damages = error, damages + 1
            self.close()
            if damages == DAMAGES:
                raise why
            if time.monotonic() + pause > give_up:
                raise Lost(f"The {self._name} is gone ({why}); this process has to start again.") from why
            self._pause(pause)
        raise AssertionError("the back-off never ends")

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
                # A host that is gone refuses nothing: it is silent, or the network has no way to it.
                raise Closed(str(error)) from error
            if self.secret:
                self._prove(connection)
            self._connection = connection
        return self._connection

    def _prove(self, connection: Connection) -> None:
        """Have the server prove itself, and then do so. Raises WireError, Refused, Leaving; the connection is closed
        then. Closed where the server has no proof: a stranger may have taken the port of one that is gone."""
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
            raise Refused(str(answer.body.get("code")), str(answer.body.get("why")))
        if answer.head.seq != message.head.seq:
            raise WireError(f"The {self._name} answered request {answer.head.seq}, {message.head.seq} was asked.")
        return answer.head.op is not Op.AHEAD

    def _result(self, talk: Talk) -> Message:
        if not talk.sent:
            self.close()  # the answer came before all was asked: the rest would be taken for the next request
        return talk.result()

    def check_leaving(self) -> None:
        """Raises Leaving where this process should end instead of waiting for the server."""
        if self._leaving():
            raise Leaving(f"This process was asked to end while it looked for the {self._name}.")

    def _pause(self, seconds: float) -> None:
        self.check_leaving()
        if self.moved:
            raise self._gone()
        time.sleep(seconds)
