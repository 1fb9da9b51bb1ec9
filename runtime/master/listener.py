"""The master's listener: one thread serves all connections.

Requests are small frames without blocks, so one thread reads and answers them without ever waiting for a peer. Bytes
that a peer does not accept at once are kept until it does.
"""

from __future__ import annotations

import os
import selectors
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from runtime import contract
from runtime.errors import Refused, WireError
from runtime.messages import to_json
from runtime.messages import training as messages
from runtime.protocol import frames, shortage
from runtime.protocol.connection import Message, hung_up
from runtime.protocol.frames import HEADER_BYTES, Flag, Header, Op
from runtime.protocol.proof import (
    HELLO_BYTES,
    NO_PROOF,
    PAUSE_SECONDS,
    PROOF_SECONDS,
    UNPROVEN,
    UNPROVEN_LIMIT,
    Challenge,
    Refusals,
    Unproven,
)
from runtime.protocol.shortage import Shortage

_RECEIVE_BYTES = 1 << 16
# A peer that leaves this many bytes unread is disconnected.
_UNREAD_BYTES = 1 << 22
_ANSWER = Flag.REPLY | Flag.LAST
_REFUSAL = _ANSWER | Flag.ERROR


class Caller:
    """One connection: the received part of its next frame, and the bytes still to be sent."""

    def __init__(self, link: socket.socket, challenge: Challenge | None) -> None:
        link.setblocking(False)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.link = link
        self.challenge = challenge  # None: the peer has proven itself, or does not have to
        self.incoming = b""
        self.outgoing = b""


class Call(NamedTuple):
    """A request and its connection."""

    caller: Caller
    request: Message


class Reception:
    """Listens on ``contract.own_address`` from its creation on, and answers from the first ``poll`` on.

    ``job`` and ``incarnation`` (0: not checked) fence requests meant for another attempt or for an earlier master.
    Every reply carries the incarnation, so that a trainer can distinguish a replaced master from the current one.

    ``secret`` is the attempt's secret. A request of a peer that has not proven that it holds the secret becomes no
    call. If it is empty, no proof is required. All methods but ``wake`` are for one thread at a time.
    """

    def __init__(
        self,
        job: int = 0,
        incarnation: int = 0,
        secret: bytes = b"",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.incarnation = incarnation
        self.refusals = Refusals()
        self._secret = secret
        self._job = job
        self._clock = clock
        self._shortage = Shortage()
        self._accept_at: float | None = None  # set while connections cannot be accepted
        self._unproven: dict[Caller, float] = {}  # the deadline of each proof; the oldest first
        self._dismissed: dict[Caller, tuple[float, WireError]] = {}  # when each refused connection ends, and why
        self._listener = socket.create_server((contract.own_address(), 0), backlog=256)
        self._listener.setblocking(False)
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._bell, selectors.EVENT_READ)
        self._callers: set[Caller] = set()
        self._closed = False

    @property
    def address(self) -> str:
        host, port = self._listener.getsockname()
        return f"{host}:{port}"

    def wake(self) -> None:
        """Make ``poll`` return. Callable from any thread; has no effect after ``close``."""
        if not self._closed:
            os.eventfd_write(self._bell, 1)

    def poll(self, seconds: float) -> list[Call]:
        """Return the received requests, waiting for at most ``seconds``. Other attempts are refused here."""
        calls: list[Call] = []
        self._look_at_clock()
        for key, events in self._selector.select(min([seconds, *self._dues()])):
            if key.fileobj is self._listener:
                self._accept()
            elif key.data is None:
                os.eventfd_read(self._bell)
            elif events & selectors.EVENT_READ:
                calls += self._read(key.data)
            else:
                self._send(key.data, b"")
        return calls

    def close(self) -> None:
        """Stop listening and close every connection. May be called twice."""
        if self._closed:
            return
        self._closed = True
        for caller in list(self._callers):
            self.hang_up(caller)
        self._selector.close()
        self._listener.close()
        os.close(self._bell)

    # --- Answering ---------------------------------------------------------------------------------------------------
    def answer(self, call: Call, body: Mapping[str, Any]) -> None:
        self._reply(call, _ANSWER, body)

    def refuse(self, call: Call, refused: Refused) -> None:
        self._reply(call, _REFUSAL, {"code": refused.code, "why": to_json(refused.why)})

    def ask_to_wait(self, call: Call) -> None:
        """Report that the answer takes longer and that this master is alive."""
        self._send_frame(call, Op.WAIT, _ANSWER, {})

    def hang_up(self, caller: Caller) -> None:
        if caller in self._callers:
            self._callers.remove(caller)
            self._unproven.pop(caller, None)
            self._dismissed.pop(caller, None)
            self._selector.unregister(caller.link)
            caller.link.close()

    def _reply(self, call: Call, flags: Flag, body: Mapping[str, Any]) -> None:
        self._send_frame(call, call.request.head.op, flags, body)

    def _send_frame(self, call: Call, op: Op, flags: Flag, body: Mapping[str, Any]) -> None:
        asked, payload = call.request.head, frames.to_json(body)
        head = Header(op, flags, job=asked.job, incarnation=self.incarnation, seq=asked.seq)
        self._send(call.caller, frames.pack(head, payload) + payload)

    def _send(self, caller: Caller, data: bytes) -> None:
        """Send the bytes that wait and then ``data``, or as much as the peer accepts now."""
        if caller not in self._callers:
            return
        waited = bool(caller.outgoing)
        data = caller.outgoing + data
        try:
            data = data[caller.link.send(data) :]
        except BlockingIOError:
            pass
        except OSError:
            self.hang_up(caller)
            return
        caller.outgoing = data
        if len(data) > _UNREAD_BYTES:
            self.hang_up(caller)
        elif bool(data) != waited:
            both = selectors.EVENT_READ | selectors.EVENT_WRITE
            self._selector.modify(caller.link, both if data else selectors.EVENT_READ, caller)

    # --- Reading -----------------------------------------------------------------------------------------------------
    def _accept(self) -> None:
        link: socket.socket | None = None
        try:
            link, _peer = self._listener.accept()
            caller = Caller(link, Challenge(self._secret, self.address) if self._secret else None)
            self._selector.register(link, selectors.EVENT_READ, caller)
        except (ConnectionError, BlockingIOError):  # the peer gave up
            _close(link)
        except OSError as error:
            # Descriptors or memory are used up. The listener would be reported as ready again and again.
            _close(link)
            self._shortage.add(error)
            self._accept_at = self._clock() + shortage.PAUSE_SECONDS
            self._selector.unregister(self._listener)
        else:
            self._callers.add(caller)
            if caller.challenge:
                self._unproven[caller] = self._clock() + PROOF_SECONDS
            for oldest in list(self._unproven)[:-UNPROVEN_LIMIT]:
                self.hang_up(oldest)

    def _dues(self) -> list[float]:
        """Seconds until the next deadline that does not depend on a request."""
        now, times = self._clock(), [] if self._accept_at is None else [self._accept_at]
        times += list(self._unproven.values())[:1]
        times += [until for until, _ in list(self._dismissed.values())[:1]]
        return [max(0.0, at - now) for at in times]

    def _look_at_clock(self) -> None:
        now = self._clock()
        if self._accept_at is not None and now >= self._accept_at:
            try:
                self._selector.register(self._listener, selectors.EVENT_READ)
                self._accept_at = None
            except OSError as short:  # the shortage continues
                self._shortage.add(short)
                self._accept_at = now + shortage.PAUSE_SECONDS
        for late in [caller for caller, until in self._unproven.items() if until <= now]:
            self.refusals.add(_peer(late))
            self.hang_up(late)
        for caller, error in [(caller, error) for caller, (until, error) in self._dismissed.items() if until <= now]:
            self._send_bye(caller, error)

    def _read(self, caller: Caller) -> list[Call]:
        try:
            data = caller.link.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            if caller.challenge and caller.challenge.responded:
                self.refusals.add(_peer(caller))
            self.hang_up(caller)
            return []
        if caller in self._dismissed:
            return []
        caller.incoming += data
        try:
            return [call for request in _requests(caller) if (call := self._admitted(caller, request))]
        except WireError as error:
            if caller.challenge:
                self._dismiss(caller, error)
            else:
                self._send_bye(caller, error)
            return []

    def _dismiss(self, caller: Caller, error: WireError) -> None:
        """Refuse a peer without proof. It has no second try and is answered after a pause."""
        self.refusals.add(_peer(caller))
        self._unproven.pop(caller, None)
        self._dismissed[caller] = self._clock() + PAUSE_SECONDS, error

    def _check_proof(self, caller: Caller, challenge: Challenge, request: Message) -> None:
        """Process a message of the proof. Raises Unproven."""
        if request.head.op is not Op.HELLO:
            raise Unproven(NO_PROOF)
        if not challenge.responded:
            if hung_up(caller.link):
                # It connected while this master was on standby and has given up: this is no attempt without proof.
                self.hang_up(caller)
                return
            self.answer(Call(caller, request), challenge.respond(request.body))
            return
        challenge.check(request.body)
        caller.challenge = None
        del self._unproven[caller]

    def _admitted(self, caller: Caller, request: Message) -> Call | None:
        """Return the request as a call, or None after refusing one that was meant for another process."""
        call, head = Call(caller, request), request.head
        if caller.challenge:
            self._check_proof(caller, caller.challenge, request)
            return None
        if self._job and head.job and head.job != self._job:
            why = messages.REQUEST_OF_OTHER_ATTEMPT()
            self.refuse(call, Refused("other_job", why))
            return None
        if self.incarnation and head.expected and head.expected != self.incarnation:
            why = messages.REQUEST_OF_REPLACED_PROCESS()
            self.refuse(call, Refused("not_owner", why))
            return None
        return call

    def _send_bye(self, caller: Caller, error: WireError) -> None:
        """Send a peer with invalid bytes or without proof the reason, and disconnect it."""
        code = UNPROVEN if isinstance(error, Unproven) else frames.BAD_FRAME
        self.refuse(Call(caller, Message(Header(Op.BYE))), Refused(code, str(error)))
        self.hang_up(caller)


def _peer(caller: Caller) -> str:
    try:
        return str(caller.link.getpeername()[0])
    except OSError:
        return "a host that is gone"


def _close(link: socket.socket | None) -> None:
    if link is not None:
        link.close()


def _requests(caller: Caller) -> Iterator[Message]:
    """Yield the complete frames received. Raises WireError for invalid bytes."""
    while len(caller.incoming) >= HEADER_BYTES:
        data = caller.incoming[:HEADER_BYTES]
        head = frames.unpack(data)
        if head.op is Op.BLOCK or not head.last:
            raise WireError(messages.NUMBERS_NOT_EXPECTED())
        if caller.challenge and head.size > HELLO_BYTES:
            raise Unproven(NO_PROOF)
        end = HEADER_BYTES + head.size
        if len(caller.incoming) < end:
            return
        payload, caller.incoming = caller.incoming[HEADER_BYTES:end], caller.incoming[end:]
        frames.verify(data, head, payload)
        yield Message(head, frames.from_json(payload))
