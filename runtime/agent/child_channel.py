"""The agent's end of the link to its process. Messages come from user code and are checked."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from runtime import contract
from runtime.messages import from_json

LONGEST_MESSAGE = 4 * 1024 * 1024
LONGEST_KEY = 200
LONGEST_KIND = 32
LONGEST_TEXT = 2000
_LARGEST_STEP = 2**53  # above it the portal's numbers have gaps
_SHOWN = 30  # characters shown of an invalid number
_END_OF_CALENDAR = 253_402_300_800.0  # the first second of the year 10000
# After this long with a full buffer, a process that does not read gets no more messages.
_SEND_TIMEOUT = struct.pack("ll", 2, 0)
_NON_FINITE = ("NaN", "Infinity", "-Infinity")


class Listener(Protocol):
    """Receiver of the messages of the process. Its methods are called on the link's thread."""

    def hello(self, address: str, release: str) -> None: ...

    def metrics(self, entries: list[str]) -> None: ...

    def event(self, kind: str, text: str) -> None: ...

    def failure(self, text: str) -> None: ...

    def paused(self, stopped: bool, version: int | None) -> None: ...

    def misunderstood(self, why: str) -> None: ...


class Link:
    """Socket pair: one end is passed to the process, and a thread reads the other."""

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair()
        self._ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _SEND_TIMEOUT)
        self._sending = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def child_end(self) -> int:
        return self._theirs.fileno()

    def listen(self, listener: Listener) -> None:
        """Start reading. The process must have been started before: only it may hold the other end."""
        self._theirs.close()
        self._thread = threading.Thread(target=self._read, args=(listener,), name="link", daemon=True)
        self._thread.start()

    def send(self, op: str, **message: Any) -> None:
        """Send a message to the process. Does nothing if the process no longer reads."""
        line = json.dumps({"op": op, **message}).encode() + b"\n"
        with self._sending, contextlib.suppress(OSError):
            try:
                self._ours.sendall(line)
            except TimeoutError:
                # Half a message may have been sent: the process could not parse anything after it.
                self._ours.shutdown(socket.SHUT_WR)

    def drain(self, timeout: float) -> None:
        """Wait until all messages that the process sent before it ended have been read."""
        if self._thread:
            self._thread.join(timeout)

    def _read(self, listener: Listener) -> None:
        with contextlib.suppress(OSError), self._ours.makefile("rb") as lines:
            while line := lines.readline(LONGEST_MESSAGE):
                try:
                    _take(json.loads(line), listener)
                except Exception as error:  # noqa: BLE001  nothing else reads the messages of the process
                    listener.misunderstood(str(error) or type(error).__name__)


def _take(message: Mapping[str, Any], listener: Listener) -> None:
    match message["op"]:
        case contract.HELLO:
            listener.hello(str(message.get("address", "")), _plain(message.get("release", ""), LONGEST_KEY))
        case contract.METRICS:
            listener.metrics(list(_point_entries(message["points"], listener)))
        case contract.EVENT:
            listener.event(_plain(message["kind"], LONGEST_KIND), _message(message["text"]))
        case contract.FAILURE:
            listener.failure(_message(message["text"]))
        case contract.PAUSED:
            version = message["version"]
            listener.paused(message["stopped"] is True, None if version is None else _version(version))
        case other:
            raise ValueError(f"unknown message {str(other)[:LONGEST_KEY]!r}")


def _point_entries(points: Any, listener: Listener) -> Iterator[str]:
    """Return points as entries of the spool, without those that the portal would refuse."""
    for point in points:
        try:
            yield _point_entry(*point)
        except (ValueError, TypeError, OverflowError) as error:
            listener.misunderstood(f"{error} in the point {str(point)[:LONGEST_KEY]}")


def _point_entry(at: Any, step: Any, key: Any, value: Any) -> str:
    number = value if value in _NON_FINITE else float(value)
    moment = float(at)
    if not 0 <= moment < _END_OF_CALENDAR:
        raise ValueError("no unix time")
    name = "".join(character if character.isprintable() else "?" for character in _plain(key, LONGEST_KEY))
    count = int(step)
    if abs(count) > _LARGEST_STEP:
        raise ValueError(f"no step between -2**53 and 2**53 ({str(step)[:_SHOWN]})")
    return json.dumps([moment, count, name or "?", number], allow_nan=False, ensure_ascii=False)


def _version(value: Any) -> int:
    version = int(value)
    if not 0 <= version <= _LARGEST_STEP:
        raise ValueError("no version between 0 and 2**53")
    return version


def _message(document: Any) -> str:
    """Return a text, or a message with its code if it can be sent on as it is."""
    text = from_json(document)
    plain = _plain(text, LONGEST_TEXT)
    return text if plain == text else plain


def _plain(text: Any, limit: int) -> str:
    """Return the start of a text. Lone surrogates, which JSON may carry and UTF-8 may not, are replaced."""
    return str(text)[:limit].encode("utf-8", "replace").decode()
