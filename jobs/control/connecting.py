"""Opens a socket to the agent of a replica and proves both ends."""

from __future__ import annotations

import os
import socket
import time

from jobs.backends import factory as backend_factory
from jobs.backends.base import AttemptRef, BackendUnavailable, ControlAddress, ControlMissing
from jobs.control import keys
from jobs.control.errors import AgentTooOld, NotRunning, Unreachable
from jobs.messages import control as messages
from runtime.control import handshake, identity
from runtime.control.connection import Closed, Connection
from runtime.errors import WireError

CONNECT_SECONDS = 5.0


def open_connection(
    ref: AttemptRef, replica: str, seconds: float = CONNECT_SECONDS
) -> tuple[socket.socket, Connection]:
    """Return a proven connection to the agent, and its socket. Blocks up to ``seconds``. Raises ControlError."""
    deadline = time.monotonic() + seconds
    address = _address(ref, replica)
    name = identity.name_of(ref.attempt_id, replica)
    for key in keys.accepted(ref.attempt_id):
        link = _connected(address, replica, deadline)
        connection = Connection(link, identity.PROOF_BYTES)
        try:
            if handshake.prove(connection, key.encode(), name, max(0.0, deadline - time.monotonic())):
                return link, connection
        except Closed:
            connection.close()
            raise NotRunning(messages.REPLICA_NOT_RUNNING(name=replica)) from None
        except WireError as error:
            connection.close()
            raise Unreachable(messages.AGENT_UNREACHABLE(name=replica, why=error)) from error
        connection.close()
    why = "its key is not derived from SECRET_KEY or SECRET_KEY_FALLBACKS"
    raise Unreachable(messages.AGENT_UNREACHABLE(name=replica, why=why))


def _address(ref: AttemptRef, replica: str) -> ControlAddress:
    try:
        address = backend_factory.current().control_address(ref, replica)
    except ControlMissing:
        raise AgentTooOld(messages.AGENT_TOO_OLD(name=replica)) from None
    except BackendUnavailable as error:
        raise Unreachable(messages.AGENT_UNREACHABLE(name=replica, why=error)) from error
    if address is None:
        raise NotRunning(messages.REPLICA_NOT_RUNNING(name=replica))
    return address


def _connected(address: ControlAddress, replica: str, deadline: float) -> socket.socket:
    left = max(0.01, deadline - time.monotonic())
    try:
        if address.socket is None:
            return socket.create_connection((address.host, address.port), left)
        return _connected_to_file(address, left)
    except (ConnectionRefusedError, FileNotFoundError):
        if address.socket is None:
            raise Unreachable(messages.AGENT_UNREACHABLE(name=replica, why="its port is closed")) from None
        raise NotRunning(messages.REPLICA_NOT_RUNNING(name=replica)) from None
    except OSError as error:
        raise Unreachable(messages.AGENT_UNREACHABLE(name=replica, why=error.strerror or "no answer")) from error


def _connected_to_file(address: ControlAddress, seconds: float) -> socket.socket:
    assert address.socket is not None  # noqa: S101  the caller has looked
    place = os.open(address.socket.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        link.settimeout(seconds)
        link.connect(identity.short_address(place))
    except BaseException:
        link.close()
        raise
    finally:
        os.close(place)
    return link
