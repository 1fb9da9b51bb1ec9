"""Both sides of the handshake on a new connection, each within a time limit for all of it."""

from __future__ import annotations

import time

from runtime.control.connection import Connection
from runtime.protocol.proof import Challenge, Claim, Unproven


def prove(connection: Connection, key: bytes, name: str, seconds: float) -> bool:
    """Prove the portal's end to the agent ``name``; False if the agent does not hold the key. Raises WireError."""
    deadline, claim = time.monotonic() + seconds, Claim(key, name)
    connection.send_document(claim.hello(), seconds)
    answer = connection.receive_document(_left(deadline))
    try:
        proof = claim.prove(answer)
    except Unproven:
        return False
    connection.send_document(proof, _left(deadline))
    connection.accept_all()
    return True


def check(connection: Connection, key: bytes, name: str, seconds: float) -> None:
    """Check, as the agent ``name``, that the peer holds the key. Raises WireError if it does not prove that in time."""
    deadline, challenge = time.monotonic() + seconds, Challenge(key, name)
    connection.send_document(challenge.respond(connection.receive_document(_left(deadline))), _left(deadline))
    challenge.check(connection.receive_document(_left(deadline)))


def _left(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())
