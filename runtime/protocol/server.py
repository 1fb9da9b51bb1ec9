"""The server: it accepts connections and answers messages, with one thread per connection."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

from runtime import contract
from runtime.errors import Leaving, Refused, WireError
from runtime.messages import to_json
from runtime.messages import training as messages
from runtime.protocol import frames, shortage
from runtime.protocol.connection import Arrived, Began, Closed, Connection, DeadlinePassed, Message, refuse_blocks
from runtime.protocol.frames import Flag, Header
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

log = logging.getLogger("wire")

SEND_SECONDS = 30.0
# The interval of the wait replies to a waiting peer.
WAITING_SECONDS = 3.0
# A quiet peer is no fault: the end of its process closes the connection.
QUIET_SECONDS = 365 * 86400.0


class Session(Protocol):
    """Answers one connection; all calls come from that connection's thread."""

    def allocate(self, header: Header) -> memoryview:
        """Memory for the payload of a block frame."""

    def answer(self, request: Message) -> Message | None:
        """Return the reply, if one is due. It may take long: wait replies are sent meanwhile.

        ``Refused`` becomes a typed reply.
        """

    def closed(self) -> None:
        """The connection is closed."""


@runtime_checkable
class Listening(Session, Protocol):
    """A session that may begin with a request before all of it has arrived."""

    def began(self, head: Header, body: Mapping[str, Any], send: Callable[[Message], None]) -> None:
        """The head of a message has arrived. ``send`` sends an answer that precedes the reply."""

    def arrived(self, header: Header) -> None:
        """A block of it has arrived and is in its memory."""


def reply(request: Message, body: Mapping[str, Any] | None = None) -> Message:
    """A reply without blocks."""
    return Message(reply_head(request.head), body or {})


def reply_head(head: Header, version: int = 0) -> Header:
    return Header(head.op, Flag.REPLY, job=head.job, shard=head.shard, seq=head.seq, version=version)


class JsonSession:
    """A session of plain requests: ``function(head, body)`` returns the reply's body."""

    def __init__(self, function: Callable[[Header, Mapping[str, Any]], Mapping[str, Any]]) -> None:
        self._function = function

    def allocate(self, header: Header) -> memoryview:
        return refuse_blocks(header)

    def answer(self, request: Message) -> Message:
        return reply(request, self._function(request.head, request.body))

    def closed(self) -> None:
        """Nothing is kept for a connection."""


class Server:
    """Listens on ``contract.own_address`` from its creation on; ``start`` begins to accept.

    ``open_session`` is called once per connection. ``job`` and ``incarnation`` (0: not checked) fence requests meant
    for another attempt or for an earlier process. A peer that has waited for an answer for ``waiting`` seconds is sent
    wait replies repeatedly, independently of the thread that works on the answer.
    """

    def __init__(
        self,
        open_session: Callable[[], Session],
        job: int = 0,
        incarnation: int = 0,
        waiting: float = WAITING_SECONDS,
        secret: bytes = b"",
    ) -> None:
        """``secret`` is the attempt's: a peer without proof of it reaches no session. If empty, none is required."""
        self._open_session = open_session
        self._waiting = waiting
        self._secret = secret
        self.refusals = Refusals()
        self._shortage = Shortage()
        self._job = job
        self.incarnation = incarnation
        self._listener = socket.create_server((contract.own_address(), 0))
        self._lock = threading.Lock()
        self._connections: dict[Connection, threading.Thread] = {}
        self._unproven: dict[Connection, None] = {}  # the oldest first
        self._asked: dict[Connection, tuple[Header, float]] = {}  # the requests being answered, and since when
        self._closing = False
        self._closed = threading.Event()
        self._waiting_thread = threading.Thread(target=self._send_wait_replies, name="server-waiting", daemon=True)
        self._acceptor = threading.Thread(target=self._accept, name="server-accept", daemon=True)

    @property
    def address(self) -> str:
        host, port = self._listener.getsockname()
        return f"{host}:{port}"

    def start(self) -> None:
        self._acceptor.start()
        self._waiting_thread.start()

    def close(self) -> None:
        """Stop accepting, close every connection, wait for their threads. May be called twice."""
        self._closing = True
        self._closed.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            connections = dict(self._connections)
        for connection in connections:
            connection.abort()
        for thread in connections.values():
            if thread is not threading.current_thread():
                thread.join(5.0)

    def _accept(self) -> None:
        while not self._closing:
            try:
                self._admit(self._listener.accept()[0])
            except Exception as error:  # noqa: BLE001
                # Descriptors, threads or memory are used up for a moment, or the peer has left. A server whose acceptor
                # ends keeps its lease and is never replaced, so the acceptor continues after any error.
                if not self._closing and not isinstance(error, ConnectionError):
                    self._shortage.add(error)
                    self._closed.wait(shortage.PAUSE_SECONDS)

    def _admit(self, link: socket.socket) -> None:
        """Serve a connection on a thread of its own. Raises OSError, RuntimeError, and then closes the connection."""
        try:
            connection = Connection(link, leaving=lambda: self._closing)
        except Exception:
            link.close()
            raise
        try:
            thread = threading.Thread(target=self._serve, args=(connection,), name="server-connection", daemon=True)
            with self._lock:
                self._connections[connection] = thread
                if self._secret:
                    self._unproven[connection] = None
                surplus = list(self._unproven)[:-UNPROVEN_LIMIT]
            for oldest in surplus:
                oldest.abort()
            thread.start()
        except Exception:
            link.close()
            with self._lock:
                self._connections.pop(connection, None)
                self._unproven.pop(connection, None)
            raise

    def _serve(self, connection: Connection) -> None:
        try:
            if not self._secret or self._proves_itself(connection):
                self._converse(connection)
        except (Closed, DeadlinePassed):
            pass
        except WireError as error:
            _send_bye(connection, error)
        except Exception:
            if not self._closing:
                raise
        finally:
            connection.close()
            with self._lock:
                self._connections.pop(connection, None)
                self._unproven.pop(connection, None)

    def _proves_itself(self, connection: Connection) -> bool:
        """Whether the peer holds the secret. A peer that does not is answered after a pause, and has no second try."""
        challenge, peer = Challenge(self._secret, self.address), connection.peer
        connection.head_limit = HELLO_BYTES
        try:
            first = _hello(connection)
            if connection.hung_up:
                return False
            connection.send(reply(first, challenge.respond(first.body)), PROOF_SECONDS)
            challenge.check(_hello(connection).body)
        except Leaving:
            return False
        except WireError as error:
            # A peer that only probes the port, or is ended while it connects, has made no attempt.
            if challenge.responded or not isinstance(error, Closed):
                self.refusals.add(peer)
            if not isinstance(error, Closed):
                self._closed.wait(PAUSE_SECONDS)
                _send_bye(connection, error)
            return False
        with self._lock:
            self._unproven.pop(connection, None)
        connection.head_limit = frames.MAX_PAYLOAD
        return True

    def _converse(self, connection: Connection) -> None:
        session = self._open_session()
        callbacks = self._callbacks(connection, session) if isinstance(session, Listening) else ()
        try:
            while not self._closing:
                request = connection.receive(QUIET_SECONDS, session.allocate, *callbacks)
                self._answer(connection, session, request)
        finally:
            session.closed()

    def _callbacks(self, connection: Connection, session: Listening) -> tuple[Began, Arrived]:
        def send(message: Message) -> None:
            connection.send(message, SEND_SECONDS)

        def began(head: Header, body: Mapping[str, Any]) -> None:
            with contextlib.suppress(Refused):  # it is answered when all has arrived
                self._check(head)
                session.began(head, body, send)

        return began, session.arrived

    def _answer(self, connection: Connection, session: Session, request: Message) -> None:
        with self._lock:
            self._asked[connection] = (request.head, time.monotonic())
        try:
            self._check(request.head)
            answer = session.answer(request)
        except Refused as refused:
            answer = _error(request.head, refused)
        finally:
            with self._lock:
                del self._asked[connection]
        if answer is not None:
            head = answer.head._replace(incarnation=self.incarnation)  # the process that answers
            connection.send(Message(head, answer.body, answer.blocks), SEND_SECONDS)

    def _send_wait_replies(self) -> None:
        """Send a wait reply to each peer that has waited long. A late one does no harm."""
        while not self._closed.wait(self._waiting / 2):
            long_ago = time.monotonic() - self._waiting
            with self._lock:
                asked = [(connection, head) for connection, (head, since) in self._asked.items() if since <= long_ago]
            for connection, head in asked:
                try:
                    connection.send_aside(Message(reply_head(head)._replace(op=frames.Op.WAIT)))
                except WireError:
                    pass  # the connection's own thread detects that too
                except Exception as error:  # noqa: BLE001  without this thread every long answer would count as lost
                    log.warning("A peer that waits could not be sent a sign of life: %r", error)

    def _check(self, head: Header) -> None:
        if self._job and head.job != self._job:
            raise Refused("other_job", messages.REQUEST_OF_OTHER_ATTEMPT())
        if self.incarnation and head.expected and head.expected != self.incarnation:
            raise Refused("not_owner", messages.REQUEST_OF_REPLACED_PROCESS())


def _error(head: Header, refused: Refused) -> Message:
    header = reply_head(head)._replace(flags=Flag.REPLY | Flag.ERROR)
    return Message(header, {"code": refused.code, "why": to_json(refused.why)})


def _hello(connection: Connection) -> Message:
    """Receive a message of the proof. Raises WireError."""
    message = connection.receive(PROOF_SECONDS)
    if message.head.op is not frames.Op.HELLO:
        raise Unproven(NO_PROOF)
    return message


def _send_bye(connection: Connection, error: WireError) -> None:
    """Send a peer with invalid bytes or without proof the reason of the disconnect."""
    head = Header(frames.Op.BYE)
    code = UNPROVEN if isinstance(error, Unproven) else frames.BAD_FRAME
    with contextlib.suppress(WireError):
        connection.send(_error(head, Refused(code, str(error))), 1.0)
