"""The child's end of the link to its agent: newline-delimited JSON over an inherited socket.

One thread sends and one receives; neither the training loop nor a callback ever waits for the other. The messages are
listed in ``runtime.contract``.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import math
import os
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any

from runtime import contract
from runtime.contract import Member
from runtime.errors import MixedReleases, RegattaError
from runtime.messages import to_json
from runtime.messages import training as training_messages

log = logging.getLogger("channel")

# One measured value: (unix time, step, key, value).
Point = tuple[float, int, str, float]
Members = tuple[Member, ...]

# Beyond this many unsent points a caller waits until some are sent: memory stays bounded and nothing is lost. A
# training loop rarely reaches it, because the agent only appends to a file.
WAITING_POINTS = 100_000
POINTS_PER_MESSAGE = 1000
FLUSH_SECONDS = 5.0


class Channel:
    """Link to the agent.

    The threads start with the object. ``close`` (also run at exit) sends everything that is still queued.
    """

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._state = threading.Condition()
        self._messages: deque[Mapping[str, Any]] = deque()
        self._points: deque[Point] = deque()
        self._sending = False
        self._closing = False
        self._gone = ""  # why nothing can be sent or received any more
        self._revision = -1
        self._members: Members | None = None
        self._fenced: str | None = None
        self._on_members: list[Callable[[Members], object]] = []
        self._on_fenced: list[Callable[[str], object]] = []
        self._on_pause: list[Callable[[bool, int], object]] = []
        for duty in (self._send_all, self._receive_all):
            threading.Thread(target=duty, name=f"channel{duty.__name__}", daemon=True).start()
        os.register_at_fork(after_in_child=self._leave_to_parent)
        atexit.register(self.close)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Channel:
        """Open the socket that the agent passed on. Raises LookupError in a process without an agent."""
        number = contract.read(environ).agent_fd
        if number is None:
            raise LookupError(f"{contract.AGENT_FD} is not set: no agent runs beside this process.")
        os.set_inheritable(number, False)
        return cls(socket.socket(fileno=number))

    # --- Messages to the agent ---------------------------------------------------------------------------------------
    def hello(self, address: str = "") -> None:
        """Request registration. ``address`` is ``host:port`` for the roles that serve."""
        self._post({"op": contract.HELLO, "address": address, "release": contract.RELEASE})

    def event(self, kind: str, text: str) -> None:
        """Add an entry to the job's timeline."""
        self._post({"op": contract.EVENT, "kind": kind, "text": to_json(text)})

    def failure(self, text: str) -> None:
        """Report the message of the error with which the process ends. It is shown in the language of the reader."""
        self._post({"op": contract.FAILURE, "text": to_json(text)})

    def paused(self, stopped: bool, version: int | None) -> None:
        """Report whether this process stands between two steps, and the version of its parameters."""
        self._post({"op": contract.PAUSED, "stopped": stopped, "version": version})

    def report_failures(self) -> None:
        """Report an error of the runtime that nothing catches, before Python prints it."""
        previous = sys.excepthook

        def report(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
            if isinstance(error, RegattaError):
                self.failure(str(error))
            previous(kind, error, traceback)

        sys.excepthook = report

    def metrics(self, points: Iterable[Point]) -> None:
        """Queue points of (unix time, step, key, value). Returns at once unless 100,000 points are queued."""
        with self._state:
            self._state.wait_for(lambda: len(self._points) < WAITING_POINTS or bool(self._gone))
            if not self._gone:
                self._points.extend(points)
            self._state.notify_all()

    def flush(self, timeout: float = FLUSH_SECONDS) -> bool:
        """Wait until the agent has received everything queued. Return False on timeout."""
        with self._state:
            return self._state.wait_for(lambda: self._idle() or bool(self._gone), timeout) and not self._gone

    def close(self) -> None:
        """Flush and close. May be called twice."""
        atexit.unregister(self.close)
        with self._state:
            if self._closing:
                return
            self._closing = True
            self._state.notify_all()
        self.flush()
        self._end("the channel was closed")
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_RDWR)
        self._link.close()

    # --- Messages from the agent -------------------------------------------------------------------------------------
    def members(self) -> Members:
        """Return the live processes of the attempt, as last reported; empty before the first report."""
        with self._state:
            return self._members or ()

    def wait_for_members(self, predicate: Callable[[Members], bool], timeout: float) -> Members:
        """Wait until the members satisfy the predicate.

        Raises TimeoutError, ConnectionError if the link is gone, and MixedReleases.
        """
        deadline = time.monotonic() + timeout
        with self._state:
            while not (self._members is not None and predicate(self._members)):
                if self._gone:
                    raise ConnectionError(training_messages.MEMBERS_UNAVAILABLE(why=self._gone))
                if not self._state.wait(max(0.0, deadline - time.monotonic())) and time.monotonic() >= deadline:
                    raise TimeoutError(_waited_for_nothing(timeout, self._members or ()))
            _refuse_other_releases(self._members)
            return self._members

    def on_members(self, callback: Callable[[Members], object]) -> None:
        """Register a callback for every change of the members. It is called at once if they are known.

        It runs on the receiving thread. An error in the callback fences this process.
        """
        with self._state:
            self._on_members.append(callback)
            known = self._members
        if known is not None:
            callback(known)

    def on_fenced(self, callback: Callable[[str], object]) -> None:
        """Register a callback for fencing: this process must stop writing and exit with ``contract.EXIT_RESTART``.

        The callback gets the reason. A broken link counts as fencing too: without an agent nothing holds the lease.
        """
        with self._state:
            self._on_fenced.append(callback)
            why = self._fenced
        if why is not None:
            callback(why)

    def on_pause(self, callback: Callable[[bool, int], object]) -> None:
        """Register the callback for requests to stop between two steps. It runs on the receiving thread."""
        with self._state:
            self._on_pause.append(callback)

    # --- Sending -----------------------------------------------------------------------------------------------------
    def _post(self, message: Mapping[str, Any]) -> None:
        with self._state:
            if not self._gone:
                self._messages.append(message)
            self._state.notify_all()

    def _idle(self) -> bool:
        return not (self._messages or self._points or self._sending)

    def _send_all(self) -> None:
        try:
            while (batch := self._next_batch()) is not None:
                self._link.sendall(batch)
        except OSError as error:
            self._end(f"the link to the agent broke ({error.strerror or error})")
        except Exception as error:  # otherwise a training loop would wait for ever for buffer space
            log.exception("What this process reports cannot be sent.")
            self._end(f"the link to the agent broke ({error!r})")

    def _next_batch(self) -> bytes | None:
        """Wait for something to send. Return None when nothing more will come."""
        with self._state:
            self._sending = False
            self._state.notify_all()
            self._state.wait_for(lambda: self._messages or self._points or self._closing or self._gone)
            if self._gone or self._idle():
                return None
            self._sending = True
            messages = [self._messages.popleft() for _ in range(len(self._messages))]
            points = [self._points.popleft() for _ in range(min(len(self._points), POINTS_PER_MESSAGE))]
            self._state.notify_all()
        if points:
            messages.append({"op": contract.METRICS, "points": [_plain(point) for point in points]})
        return b"".join(_encode(message) for message in messages)

    # --- Receiving ---------------------------------------------------------------------------------------------------
    def _receive_all(self) -> None:
        why = "the agent beside this process is gone"
        try:
            with self._link.makefile("rb") as lines:
                for line in lines:
                    self._take(json.loads(line))
        except Exception as error:  # noqa: BLE001  a process that receives nothing more must not continue unnoticed
            why = f"the link to the agent broke ({error!r})"
        self._end(why)
        if not self._closing:
            self._fence(why)

    def _take(self, message: Mapping[str, Any]) -> None:
        if message["op"] == contract.MEMBERS:
            self._take_members(int(message["revision"]), tuple(Member.from_json(body) for body in message["members"]))
        elif message["op"] == contract.FENCED:
            self._fence(str(message["why"]))
        elif message["op"] == contract.PAUSE:
            for callback in list(self._on_pause):
                callback(bool(message["on"]), int(message["target"]))

    def _take_members(self, revision: int, members: Members) -> None:
        with self._state:
            if revision <= self._revision:
                return
            self._revision, self._members = revision, members
            callbacks = list(self._on_members)
            self._state.notify_all()
        for callback in callbacks:
            try:
                callback(members)
            except Exception as error:
                # Waiting for processes that are gone, this process could block for ever: it is restarted instead.
                log.exception("A change of the members could not be taken in.")
                self._fence(f"a change of the members could not be taken in ({error!r})")

    def _fence(self, why: str) -> None:
        with self._state:
            if self._fenced is not None:
                return
            self._fenced = why
            callbacks = list(self._on_fenced)
        for callback in callbacks:
            try:
                callback(why)
            except Exception:
                log.exception("That this process is fenced could not be taken in.")

    # --- Ending ------------------------------------------------------------------------------------------------------
    def _end(self, why: str) -> None:
        with self._state:
            self._gone = self._gone or why
            self._messages.clear()
            self._points.clear()
            self._sending = False
            self._state.notify_all()

    def _leave_to_parent(self) -> None:
        """Detach in a forked copy: threads do not survive a fork, and the link belongs to the parent."""
        self._gone, self._closing, self._state = (
            "this process is a copy of the registered one",
            True,
            threading.Condition(),
        )
        with contextlib.suppress(OSError):
            os.close(self._link.detach())


def _refuse_other_releases(members: Members) -> None:
    """Raise MixedReleases if a member runs another release."""
    others = {member.name: member.release for member in members if member.release not in ("", contract.RELEASE)}
    if others:
        name, release = min(others.items())
        raise MixedReleases(training_messages.MIXED_RELEASES(ours=contract.RELEASE, replica=name, theirs=release))


def _waited_for_nothing(timeout: float, members: Members) -> str:
    there = ", ".join(member.name for member in members) or "nobody"
    return training_messages.PROCESSES_MISSING(seconds=f"{timeout:g}", names=there)


def _plain(point: Point) -> list[Any]:
    at, step, key, value = point
    number = float(value)
    return [float(at), int(step), str(key), number if math.isfinite(number) else _NON_FINITE[str(number)]]


# JSON has no numbers for these values.
_NON_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def _encode(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":"), allow_nan=False).encode() + b"\n"
