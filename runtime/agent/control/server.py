"""Accepts control connections, checks their proof, and runs the handler of their call.

A hostile process of the machine, or of a pod's own network, can connect too. It holds no key, so it gets a nonce and
nothing else; connections without proof are few, short, and slow to begin, so that they cost the agent little.
"""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from runtime import contract
from runtime.agent.child_process import Child
from runtime.agent.control.calls import CALLS, STREAMS, Call, Handler, Refusal
from runtime.agent.settings import Settings
from runtime.control import handshake, identity
from runtime.control.connection import Closed, Connection
from runtime.errors import WireError

# Connections without proof at a time; one more ends the oldest.
UNPROVEN_LIMIT = 16
# Calls at a time, and streams (``calls.STREAMS``) at a time; one more is refused.
CALL_LIMIT, STREAM_LIMIT = 16, 256
_BACKLOG = 128  # connections that the kernel holds until they are accepted
# The pause after an accepted connection while others have no proof: a flood of connections takes few cycles.
_FLOOD_PAUSE = 0.01
# Seconds until the first probe of a silent connection, seconds between probes, and probes without an answer.
_KEEPALIVE = {socket.TCP_KEEPIDLE: 60, socket.TCP_KEEPINTVL: 10, socket.TCP_KEEPCNT: 3}
# The time limit of the request after the proof, and of an answer.
REQUEST_SECONDS, ANSWER_SECONDS = 5.0, 10.0


def listener(settings: Settings) -> socket.socket | None:
    """Return the listening socket; None for an agent without a key. Raises OSError.

    In a pod it is the fixed port of the pod's address. On a machine it is a Unix socket in the agent's own directory,
    which no sandbox shows, with mode 0600. It must be called before user code starts, which could take the port.
    """
    if not settings.control_key:
        return None
    if settings.control_port:
        host = contract.own_address()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, settings.control_port), family=family, backlog=_BACKLOG)
        # Of accepted connections too: after the loss of a portal's node, a call would keep its place for ever.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        # A frame is sent at once: a keystroke must not wait for the acknowledgement of the one before it.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for option, value in _KEEPALIVE.items():
            listening.setsockopt(socket.IPPROTO_TCP, option, value)
        return listening
    return _unix_listener(settings.directory)


def _unix_listener(directory: Path) -> socket.socket:
    place = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        (directory / identity.SOCKET_FILE).unlink(missing_ok=True)
        # The mode of the open socket is that of the file which bind creates.
        os.fchmod(listening.fileno(), 0o600)
        listening.bind(identity.short_address(place))
        listening.listen(_BACKLOG)
    except BaseException:
        listening.close()
        raise
    finally:
        os.close(place)
    return listening


class ControlServer:
    """Serves the control channel of a replica in threads of its own. ``close`` ends it; nothing waits for it."""

    def __init__(
        self,
        settings: Settings,
        child: Child,
        listening: socket.socket,
        calls: Mapping[str, Handler] = CALLS,
        proof_seconds: float = identity.PROOF_SECONDS,
    ) -> None:
        self._settings, self._child, self._listening, self._calls = settings, child, listening, calls
        self._proof_seconds = proof_seconds
        self._name = identity.name_of(settings.attempt_id, settings.replica)
        self._lock = threading.Lock()
        self._unproven: dict[Connection, None] = {}  # the oldest first
        self._proven: set[Connection] = set()
        self._running = {True: 0, False: 0}  # streams and other calls
        self._closed = False

    def start(self) -> None:
        _thread("control", self._accept)

    def close(self) -> None:
        """End all connections, and accept no more."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        with self._lock:
            connections = [*self._unproven, *self._proven]
        for connection in connections:
            connection.abort()

    def _accept(self) -> None:
        while not self._closed:
            try:
                link, _ = self._listening.accept()
            except OSError:
                if self._closed:
                    return
                time.sleep(1)  # descriptors or memory have run out
                continue
            connection = Connection(link, identity.PROOF_BYTES)
            others = self._add(connection)
            try:
                _thread("control call", functools.partial(self._serve, connection))
            except RuntimeError:  # no thread can be started
                self._discard(connection)
                connection.close()
            if others:
                time.sleep(_FLOOD_PAUSE)

    def _add(self, connection: Connection) -> int:
        """Add a connection without proof, and end the oldest above the limit. Return how many others there are."""
        with self._lock:
            surplus = list(self._unproven)[: max(0, len(self._unproven) + 1 - UNPROVEN_LIMIT)]
            for oldest in surplus:
                self._unproven.pop(oldest)
            self._unproven[connection] = None
            others = len(self._unproven) - 1
        for oldest in surplus:
            oldest.abort()
        return others

    def _discard(self, connection: Connection) -> None:
        with self._lock:
            self._unproven.pop(connection, None)
            self._proven.discard(connection)

    def _serve(self, connection: Connection) -> None:
        try:
            handshake.check(connection, self._settings.control_key, self._name, self._proof_seconds)
            self._admit(connection)
            connection.accept_all()
            request = connection.receive_document(REQUEST_SECONDS)
            if (answer := self._limited(connection, request)) is not None:
                connection.send_document(answer, ANSWER_SECONDS)
        except WireError:
            pass  # the peer is gone, or is not the portal
        finally:
            self._discard(connection)
            connection.close()

    def _admit(self, connection: Connection) -> None:
        """Note the proof. Raises Closed for a connection that was ended before, or beyond all limits together."""
        with self._lock:
            if self._unproven.pop(connection, connection) is connection:
                raise Closed("too many connections had no proof")
            if len(self._proven) >= 2 * (CALL_LIMIT + STREAM_LIMIT):
                raise Closed("too many connections are open")
            self._proven.add(connection)

    def _limited(self, connection: Connection, request: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the answer, or a refusal if as many calls of the kind run as may."""
        name = request.get("call")
        is_stream = isinstance(name, str) and name in STREAMS
        limit, kind = (STREAM_LIMIT, "streams") if is_stream else (CALL_LIMIT, "calls")
        with self._lock:
            if self._running[is_stream] >= limit:
                return _refused("busy", f"The agent answers {limit} {kind} at a time.")
            self._running[is_stream] += 1
        try:
            return self._answer(connection, request)
        finally:
            with self._lock:
                self._running[is_stream] -= 1

    def _answer(self, connection: Connection, request: Mapping[str, Any]) -> Mapping[str, Any] | None:
        name = request.get("call")
        handler = self._calls.get(name) if isinstance(name, str) else None
        if handler is None:
            return _refused("unknown_call", f"The agent of release {contract.RELEASE} does not know this call.")
        try:
            fields = handler(Call(self._settings, self._child, connection, request))
        except Refusal as refusal:
            return _refused(refusal.code, refusal.message)
        except WireError:
            raise
        except Exception as error:  # noqa: BLE001  an error of one call must not end the agent's thread unseen
            sys.stderr.write(f"The call {name} failed: {error!r}\n")
            return _refused("failed", f"The agent could not answer: {type(error).__name__}.")
        return None if fields is None else {"ok": True, **fields}


def _refused(code: str, message: str) -> Mapping[str, Any]:
    return {"ok": False, "code": code, "message": message}


def _thread(name: str, target: Callable[[], object]) -> None:
    threading.Thread(target=target, name=name, daemon=True).start()
