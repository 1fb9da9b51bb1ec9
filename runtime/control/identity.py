"""The key of an attempt and the name of an agent, by which both ends of the control channel prove themselves.

The handshake is that of the wire (``runtime.protocol.proof``) with the attempt's control key. The name of the replica
is part of each proof, so that a message for one agent cannot be relayed to another one of the attempt:

    portal -> agent   {"nonce": N}
    agent -> portal   {"nonce": M, "proof": HMAC-SHA256("server", name, N, M)}
    portal -> agent   {"proof": HMAC-SHA256("client", name, N, M)}
"""

from __future__ import annotations

import sys
from pathlib import Path

from runtime.control.frames import HEADER_BYTES

SOCKET_FILE = "control.socket"  # in the replica's directory
PORT = 7071  # of an agent in a pod
# The time limit of the whole handshake.
PROOF_SECONDS = 5.0
# The longest payload of a frame before the proof.
PROOF_BYTES = 1024 - HEADER_BYTES
# The kernel's longest address of a Unix socket is 108 bytes with the final zero.
_LONGEST_ADDRESS = 107


def name_of(attempt_id: str, replica: str) -> str:
    """Return the name of an agent in its proofs."""
    return f"control/{attempt_id}/{replica}"


def short_address(descriptor: int) -> str:
    """Return the address of ``SOCKET_FILE`` in an open directory; the directory's path may be too long for one."""
    return f"/proc/self/fd/{descriptor}/{SOCKET_FILE}"


def is_short(path: Path) -> bool:
    """Return whether the path can be the address of a Unix socket."""
    return len(str(path).encode(sys.getfilesystemencoding(), "surrogateescape")) <= _LONGEST_ADDRESS
