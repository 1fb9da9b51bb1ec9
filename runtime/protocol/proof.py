"""Proof that both ends of a connection hold the attempt's secret, before anything else is sent on it. Pure.

    client -> server   {"nonce": N}
    server -> client   {"nonce": M, "proof": HMAC-SHA256("server", address, N, M)}
    client -> server   {"proof": HMAC-SHA256("client", address, N, M)}

The server proves itself first: another process on the port of a lost server gets only a nonce. Fresh nonces make a
recorded proof useless. The role prevents a proof from being sent back to its maker. The address prevents another
process from relaying the messages between a client and another server.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from runtime.contract import WIRE_SECRET, Environment
from runtime.errors import UsageError, WireError
from runtime.messages import training as messages

# The code of the answer to a peer without proof.
UNPROVEN = "unproven"
NO_PROOF = "This connection is refused: its peer did not prove that it belongs to this attempt of the job."
# The time limit of a proof, and the pause before a wrong one is answered and the connection closed.
PROOF_SECONDS = 10.0
PAUSE_SECONDS = 1.0
# Connections without proof at a time; one more closes the oldest.
UNPROVEN_LIMIT = 128
# No frame before the proof has a longer payload.
HELLO_BYTES = 1024
# The minimum interval between two reports of refused connections.
REPORT_SECONDS = 60.0

_NONCE_BYTES = 16
_SERVER, _CLIENT, _HANDOVER = b"server", b"client", b"handover"

log = logging.getLogger("wire")


class Unproven(WireError):
    """The peer did not prove that it holds the attempt's secret."""


class Challenge:
    """The server's side of one connection. ``address`` is the registered address of the server."""

    def __init__(self, secret: bytes, address: str) -> None:
        self._secret, self._address = secret, address
        self._expected = b""

    def respond(self, hello: Mapping[str, Any]) -> dict[str, str]:
        """Return the answer to a client's first message. Raises Unproven."""
        if self._expected:
            raise Unproven("The peer sent a second nonce.")
        theirs, ours = _nonce_of(hello), secrets.token_bytes(_NONCE_BYTES)
        self._expected = _proof(self._secret, _CLIENT, self._address.encode(), theirs, ours)
        proof = _proof(self._secret, _SERVER, self._address.encode(), theirs, ours)
        return {"nonce": ours.hex(), "proof": proof.hex()}

    @property
    def responded(self) -> bool:
        """Whether the peer has sent a nonce, and so has begun its proof."""
        return bool(self._expected)

    def check(self, message: Mapping[str, Any]) -> None:
        """Check a client's second message. Raises Unproven."""
        if not self._expected or not hmac.compare_digest(_bytes_of(message, "proof"), self._expected):
            raise Unproven(NO_PROOF)


class Claim:
    """The client's side of one connection. ``address`` is the one that it connected to."""

    def __init__(self, secret: bytes, address: str) -> None:
        self._secret, self._address = secret, address
        self._nonce = secrets.token_bytes(_NONCE_BYTES)

    def hello(self) -> dict[str, str]:
        return {"nonce": self._nonce.hex()}

    def prove(self, answer: Mapping[str, Any]) -> dict[str, str]:
        """Return the second message, for a server that has proven itself. Raises Unproven."""
        theirs, address = _nonce_of(answer), self._address.encode()
        expected = _proof(self._secret, _SERVER, address, self._nonce, theirs)
        if not hmac.compare_digest(_bytes_of(answer, "proof"), expected):
            raise Unproven(f"What listens at {self._address} did not prove that it belongs to this attempt of the job.")
        return {"proof": _proof(self._secret, _CLIENT, address, self._nonce, theirs).hex()}


def of_handover(secret: bytes, name: str) -> bytes:
    """The proof that is sent with a descriptor to the ``Handover`` of a random name."""
    return _proof(secret, _HANDOVER, name.encode())


def secret_of(environment: Environment) -> bytes:
    """The attempt's secret, which every process of a job needs to open or accept connections. Raises UsageError."""
    if not environment.wire_secret:
        raise UsageError(
            f"{WIRE_SECRET} is not set, so this process cannot prove to the others that it belongs to the job. The "
            "portal hands it to the job's agents; start the job again."
        )
    return environment.wire_secret


class Refusals:
    """Counts peers without proof, and reports them: the first at once, the others once a minute. Thread-safe."""

    def __init__(
        self, report: Callable[[str], object] = log.warning, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.report = report
        self.count = 0
        self._clock = clock
        self._lock = threading.Lock()
        self._due = clock()

    def add(self, peer: str) -> None:
        """Count a refusal of the peer with this address."""
        with self._lock:
            self.count += 1
            count, due = self.count, self._clock() >= self._due
            if due:
                self._due = self._clock() + REPORT_SECONDS
        if due:
            self.report(messages.CONNECTION_REFUSED(host=peer, count=f"{count:,}"))


def _proof(secret: bytes, role: bytes, *parts: bytes) -> bytes:
    """The HMAC of the role and the parts. Each has its length before it, so that no two lists give the same bytes."""
    framed = b"".join(len(part).to_bytes(4, "little") + part for part in (role, *parts))
    return hmac.digest(secret, framed, "sha256")


def _nonce_of(message: Mapping[str, Any]) -> bytes:
    nonce = _bytes_of(message, "nonce")
    if len(nonce) != _NONCE_BYTES:
        raise Unproven(f"A nonce has {_NONCE_BYTES} bytes, {len(nonce)} came.")
    return nonce


def _bytes_of(message: Mapping[str, Any], name: str) -> bytes:
    try:
        return bytes.fromhex(message[name])
    except (KeyError, TypeError, ValueError):
        raise Unproven(f"The message has no {name}.") from None
