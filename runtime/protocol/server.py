"""The server: it accepts connections and answers messages, with one thread per connection."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

from runtime import contract
from runtime.errors import Refused, WireError
from runtime.messages import training as messages
from runtime.protocol import shortage
from runtime.protocol.connection import Arrived, Began, Closed, Connection, DeadlinePassed, Message, refuse_blocks
from runtime.protocol.frames import Header
from runtime.protocol.peer_proof import PeerProof
from runtime.protocol.proof import Refusals
from runtime.protocol.replies import error_reply, reply, send_bye
from runtime.protocol.shortage import Shortage
from runtime.protocol.wait_replies import WAITING_SECONDS, WaitReplies

SEND_SECONDS = 30.0
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
        self._shortage = Shortage()
        self._job = job
        self.incarnation = incarnation
        self._listener = socket.create_server((contract.own_address(), 0))
        self._lock = threading.Lock()
        self._connections: dict[Connection, threading.Thread] = {}
        self._closing = False
        self._closed = threading.Event()
        self._proof = PeerProof(secret, self._closed)
        self._wait_replies = WaitReplies(waiting, self._closed)
        self._acceptor = threading.Thread(target=self._accept, name="server-accept", daemon=True)

    @property
    def address(self) -> str:
        host, port = self._listener.getsockname()
        return f"{host}:{port}"

    @property
    def refusals(self) -> Refusals:
        """The peers that were refused for lack of proof."""
        return self._proof.refusals

    def start(self) -> None:
        self._acceptor.start()
        self._wait_replies.start()

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
            self._proof.add(connection)
            thread.start()
        except Exception:
            link.close()
            self._discard(connection)
            raise

    def _serve(self, connection: Connection) -> None:
        try:
            if not self._proof.is_required or self._proof.check(connection, self.address):
                self._converse(connection)
        except (Closed, DeadlinePassed):
            pass
        except WireError as error:
            send_bye(connection, error)
        except Exception:
            if not self._closing:
                raise
        finally:
            connection.close()
            self._discard(connection)

    def _discard(self, connection: Connection) -> None:
        with self._lock:
            self._connections.pop(connection, None)
        self._proof.discard(connection)

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
        self._wait_replies.begin(connection, request.head)
        try:
            self._check(request.head)
            answer = session.answer(request)
        except Refused as refused:
            answer = error_reply(request.head, refused)
        finally:
            self._wait_replies.end(connection)
        if answer is not None:
            head = answer.head._replace(incarnation=self.incarnation)  # the process that answers
            connection.send(Message(head, answer.body, answer.blocks), SEND_SECONDS)

    def _check(self, head: Header) -> None:
        if self._job and head.job != self._job:
            raise Refused("other_job", messages.REQUEST_OF_OTHER_ATTEMPT())
        if self.incarnation and head.expected and head.expected != self.incarnation:
            raise Refused("not_owner", messages.REQUEST_OF_REPLACED_PROCESS())
