"""The proof that a server requires of its peers, and the limit of connections without one."""

from __future__ import annotations

import threading

from runtime.errors import Leaving, WireError
from runtime.protocol import frames
from runtime.protocol.connection import Closed, Connection, Message
from runtime.protocol.proof import (
    HELLO_BYTES,
    NO_PROOF,
    PAUSE_SECONDS,
    PROOF_SECONDS,
    UNPROVEN_LIMIT,
    Challenge,
    Refusals,
    Unproven,
)
from runtime.protocol.replies import reply, send_bye


class PeerProof:
    """Admits the peers that hold the attempt's ``secret``; none is required if it is empty. Thread-safe.

    Of the connections without proof, ``UNPROVEN_LIMIT`` are kept at most: a peer that sends nothing keeps none of the
    attempt's out. A peer without proof is answered after a pause, which ``closed`` ends, and has no second try.
    """

    def __init__(self, secret: bytes, closed: threading.Event) -> None:
        self._secret = secret
        self.refusals = Refusals()
        self._lock = threading.Lock()
        self._unproven: dict[Connection, None] = {}  # the oldest first
        self._closed = closed

    def add(self, connection: Connection) -> None:
        """Add a connection without proof, and abort the oldest ones above the limit."""
        if not self._secret:
            return
        with self._lock:
            self._unproven[connection] = None
            surplus = list(self._unproven)[:-UNPROVEN_LIMIT]
        for oldest in surplus:
            oldest.abort()

    def discard(self, connection: Connection) -> None:
        """The connection has ended, or its peer has proved itself."""
        with self._lock:
            self._unproven.pop(connection, None)

    @property
    def is_required(self) -> bool:
        """Whether peers have to prove that they hold the secret."""
        return bool(self._secret)

    def check(self, connection: Connection, address: str) -> bool:
        """Whether the peer holds the secret; ``address`` is the server's. Blocks until the peer has answered."""
        challenge, peer = Challenge(self._secret, address), connection.peer
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
                send_bye(connection, error)
            return False
        self.discard(connection)
        connection.head_limit = frames.MAX_PAYLOAD
        return True


def _hello(connection: Connection) -> Message:
    """Receive a message of the proof. Raises WireError."""
    message = connection.receive(PROOF_SECONDS)
    if message.head.op is not frames.Op.HELLO:
        raise Unproven(NO_PROOF)
    return message
