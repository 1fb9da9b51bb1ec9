"""Hold: a program that ends with an exception stays at it for a time (``runtime.inspection.holding``).

Programs connect to a socket in the replica's temporary directory. What they send is hostile input: the agent decides
which process is the program, how long it is held, and how often. A hold ends with its time, by ``release``, when the
replica is to stop, or with the process.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtime.agent.child_process import Child
from runtime.agent.control import processes
from runtime.agent.settings import Settings
from runtime.inspection import holding, inside

# Holds of one start of a replica; a program that asks for more is not held.
MOST_HOLDS = 10
_BACKLOG = 8
_REQUEST_SECONDS = 2.0
_PEER = struct.Struct("3i")  # pid, uid, gid
_ANCESTORS = 64
_MODE = 0o666

# Called with the phase of a report and its fields.
Report = Callable[..., None]


@dataclass(frozen=True)
class Held:
    """A program that is held. ``pid`` as the agent sees it; ``until``: monotonic time."""

    pid: int
    exception: str
    until: float


def listener(settings: Settings) -> socket.socket | None:
    """Return the listening socket; None for a replica that cannot be looked into. Raises OSError.

    It must exist before user code starts. Any user may connect: the directory is the replica's own, and the process is
    checked.
    """
    if not settings.control_key or not settings.runs_user_code:
        return None
    place = os.open(settings.temporary, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        (settings.temporary / holding.SOCKET_FILE).unlink(missing_ok=True)
        os.fchmod(listening.fileno(), _MODE)
        listening.bind(f"/proc/self/fd/{place}/{holding.SOCKET_FILE}")
        # bind applies the umask to the mode of the open socket.
        Path(f"/proc/self/fd/{place}/{holding.SOCKET_FILE}").chmod(_MODE)
        listening.listen(_BACKLOG)
    except BaseException:
        listening.close()
        raise
    finally:
        os.close(place)
    return listening


class Hold:
    """Holds of one replica, served by a thread of its own."""

    def __init__(self, settings: Settings, child: Child, listening: socket.socket, report: Report) -> None:
        self._settings, self._child, self._listening, self._report = settings, child, listening, report
        self._lock = threading.Lock()
        self._seconds = settings.hold
        self._held: Held | None = None
        self._ended = False
        self._holds = 0
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def start(self) -> None:
        threading.Thread(target=self._accept, name="hold", daemon=True).start()

    # --- From any thread ---------------------------------------------------------------------------------------------
    @property
    def held(self) -> Held | None:
        return self._held

    def set_seconds(self, seconds: float) -> bool:
        """Set for how long a program is held that ends with an exception from now on; 0: it is not.

        A program that is held already is held for that long from now on. Return whether one is.
        """
        with self._lock:
            self._seconds = seconds
            held = self._held is not None
            if self._held is not None:
                self._held = Held(self._held.pid, self._held.exception, time.monotonic() + seconds)
                if seconds:
                    self._tell(self._held)
        os.eventfd_write(self._wake, 1)
        return held

    def release(self) -> bool:
        """Let the program that is held end. Return False if none is."""
        with self._lock:
            if self._held is None:
                return False
            self._held = Held(self._held.pid, self._held.exception, 0.0)
        os.eventfd_write(self._wake, 1)
        return True

    def end(self) -> None:
        """Release the program, and hold none any more: the replica is to stop."""
        self._ended = True
        os.eventfd_write(self._wake, 1)

    # --- Its thread --------------------------------------------------------------------------------------------------
    def _accept(self) -> None:
        while True:
            try:
                link, _ = self._listening.accept()
            except OSError:  # closed, or descriptors have run out
                return
            with link, contextlib.suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
                self._serve(link)

    def _serve(self, link: socket.socket) -> None:
        """Answer one process, and hold it. Raises OSError and errors of its request."""
        link.settimeout(_REQUEST_SECONDS)
        pid = _PEER.unpack(link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))[0]
        request = json.loads(link.recv(holding.LONGEST_REQUEST))
        exception = _plain(request["exception"])
        with self._lock:
            seconds = self._seconds
            wanted = seconds > 0 and not self._ended and self._holds < MOST_HOLDS and self._is_program(pid)
            if wanted:
                self._holds += 1
                self._held = Held(pid, exception, time.monotonic() + seconds)
                self._tell(self._held)
        if not wanted:
            link.sendall(b"0")
            return
        try:
            link.sendall(b"%d" % seconds)
            self._wait(link)
        finally:
            with self._lock:
                self._held = None
                self._report("released")

    def _wait(self, link: socket.socket) -> None:
        """Wait for the end of the hold, or of the process."""
        poll = select.poll()
        for descriptor in (link.fileno(), self._wake):
            poll.register(descriptor, select.POLLIN)
        while not self._ended and (left := self._left()) > 0:
            ready = [descriptor for descriptor, _ in poll.poll(left * 1000)]
            if self._wake in ready:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._wake)
            if link.fileno() in ready:
                return

    def _left(self) -> float:
        with self._lock:
            return self._held.until - time.monotonic() if self._held is not None else 0.0

    def _tell(self, held: Held) -> None:
        left = max(1, round(held.until - time.monotonic()))
        self._report("held", exception=held.exception, seconds=left, until=round(time.time()) + left)

    def _is_program(self, pid: int) -> bool:
        """Return whether no other Python process of the replica is above this one.

        A program handles the failure of a process that it has started itself.
        """
        above = _parent(pid)
        for _ in range(_ANCESTORS):
            if above <= 1 or above == os.getpid():
                return True
            process = processes.read(above)
            if process is not None and _socket_of(self._settings.temporary, process.inner).exists():
                return False
            above = _parent(above)
        return False


def _parent(pid: int) -> int:
    """Return the number of the parent; 0 if the process has ended."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace").splitlines()
        return int(next(line for line in lines if line.startswith("PPid:")).split()[1])
    return 0


def _socket_of(temporary: Path, inner: int) -> Path:
    return temporary / f"{inside.SOCKET_PREFIX}{inner}"


def _plain(name: Any) -> str:
    """Return the start of a name of a type, without characters that cannot be printed."""
    plain = "".join(one if one.isprintable() else "?" for one in str(name)[:100].encode("utf-8", "replace").decode())
    return plain or "?"
