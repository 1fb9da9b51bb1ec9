"""One terminal: a shell on a pseudo-terminal, its last output, its viewers, and its end."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import struct
import termios
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from runtime.agent.terminal.frames import Connection, await_room
from runtime.agent.terminal.guest import Guests, NotLaunched
from runtime.agent.terminal.output_buffer import OutputBuffer
from runtime.isolation.join import Joined

BUFFER_BYTES = 1024 * 1024
# The program waits when every viewer is further behind than this. Without viewers it does not wait.
LAG_BYTES = 256 * 1024
# How long a shell without viewers is kept.
IDLE_SECONDS = 15 * 60.0
MOST_COLUMNS, MOST_ROWS = 1000, 500
_READ_BYTES = 64 * 1024
_POLL_SECONDS = 1.0
# Bash shows a prompt and edits lines; an image may have only sh.
_SHELLS = (("/bin/bash", "--norc", "-i"), ("/bin/sh", "-i"))


@dataclass(frozen=True)
class Size:
    """Size of a terminal in characters, brought within the limits."""

    columns: int
    rows: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", min(max(self.columns, 1), MOST_COLUMNS))
        object.__setattr__(self, "rows", min(max(self.rows, 1), MOST_ROWS))


@dataclass(frozen=True)
class Output:
    """Output from a position on. ``missing``: bytes before it that are no longer kept."""

    missing: int
    position: int
    data: bytes


class Viewer:
    """A reader of the session's output. It belongs to one thread; the session reads its cursor."""

    def __init__(self, session: Session, after: int) -> None:
        self._session = session
        self.cursor = after

    def next(self, most: int) -> Output | None:
        """Wait for output after the cursor and move the cursor. Return None after the end of the session."""
        return self._session.read(self, most)

    def leave(self) -> None:
        self._session.leave(self)


class Session:
    """A shell. One thread starts it and reads its output until it has ended."""

    def __init__(
        self, guests: Guests, name: str, size: Size, ended: Callable[[Session], None], idle: float = IDLE_SECONDS
    ) -> None:
        self._guests, self.name, self._size, self._idle = guests, name, size, idle
        self._ended = ended
        self._changed = threading.Condition()
        self._buffer = OutputBuffer(BUFFER_BYTES)
        self._viewers: list[Viewer] = []
        self._unwatched_since = time.monotonic()
        self._terminal = -1
        self._stopping = False
        self._failure: NotLaunched | None = None
        self._started = threading.Event()
        self.exit_code: int | None = None
        self._thread = threading.Thread(target=self._run, name=f"terminal-{name}", daemon=True)

    def start(self) -> None:
        """Start the shell. Raises NotLaunched."""
        self._thread.start()
        self._started.wait()
        if self._failure is not None:
            raise self._failure

    # --- Viewers -----------------------------------------------------------------------------------------------------
    def attach(self, after: int) -> Viewer:
        """Add a viewer that reads after the cursor; -1 is everything that is kept."""
        with self._changed:
            viewer = Viewer(self, self._buffer.first if after < 0 else min(after, self._buffer.end))
            self._viewers.append(viewer)
            self._changed.notify_all()
            return viewer

    def leave(self, viewer: Viewer) -> None:
        with self._changed:
            if viewer in self._viewers:
                self._viewers.remove(viewer)
            self._unwatched_since = time.monotonic()
            self._changed.notify_all()

    def read(self, viewer: Viewer, most: int) -> Output | None:
        with self._changed:
            while viewer.cursor >= self._buffer.end and self.exit_code is None and viewer in self._viewers:
                self._changed.wait()
            if viewer not in self._viewers:
                return None
            position, data = self._buffer.read(viewer.cursor, most)
            if not data:
                return None
            missing, viewer.cursor = position - viewer.cursor, position + len(data)
            self._changed.notify_all()
            return Output(missing, position, data)

    # --- The person's side -------------------------------------------------------------------------------------------
    def write(self, data: bytes, connection: Connection) -> None:
        """Send input to the shell. Waits while it does not read; input that no process can read is dropped.

        Raises ConnectionError if the connection, from which the input came, ends.
        """
        view = memoryview(data)
        while view:
            with self._changed:
                if self._terminal < 0 or self._stopping:
                    return
                terminal = self._terminal
                try:
                    view = view[os.write(terminal, view) :]
                except BlockingIOError:
                    pass
                except OSError:  # no process has the terminal open
                    return
            if view:
                await_room(terminal, connection, _POLL_SECONDS)

    def resize(self, size: Size) -> None:
        """Change the size of the terminal; the kernel sends SIGWINCH to the program in the foreground."""
        with self._changed:
            self._size = size
            if self._terminal >= 0:
                _set_size(self._terminal, size)

    def stop(self) -> None:
        """End the shell and what runs in its foreground."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    # --- The thread --------------------------------------------------------------------------------------------------
    def _run(self) -> None:
        try:
            joined, self._terminal = self._open()
        except NotLaunched as error:
            self._failure = error
            self._started.set()
            self._ended(self)
            return
        self._started.set()
        try:
            self._relay(joined)
        finally:
            joined.terminate()
            with self._changed:
                # A hang-up for what is left in the terminal's foreground.
                os.close(self._terminal)
                self._terminal = -1
            code = joined.exit_code()
            self._guests.end(joined)
            with self._changed:
                self.exit_code = code
                self._changed.notify_all()
            self._ended(self)

    def _open(self) -> tuple[Joined, int]:
        """Start the first shell that the replica has. Raises NotLaunched."""
        try:
            ours, theirs = os.openpty()
        except OSError as error:
            raise NotLaunched(f"no terminal could be opened: {error}", error.errno) from None
        try:
            _set_size(ours, self._size)
            os.set_blocking(ours, False)
            *others, last = _SHELLS
            for shell in others:
                with contextlib.suppress(NotLaunched):
                    return self._guests.start(shell, (theirs, theirs, theirs), terminal=True), ours
            return self._guests.start(last, (theirs, theirs, theirs), terminal=True), ours
        except NotLaunched:
            os.close(ours)
            raise
        finally:
            os.close(theirs)

    def _relay(self, joined: Joined) -> None:
        """Store output until the shell has ended, the session is stopped, or nobody has watched it for too long."""
        poll = select.poll()
        for descriptor in (self._terminal, joined.status):
            poll.register(descriptor, select.POLLIN)
        while True:
            with self._changed:
                while self._lags() and not self._stopping:
                    self._changed.wait(_POLL_SECONDS)
                idle = not self._viewers and time.monotonic() - self._unwatched_since > self._idle
            if self._stopping or idle:
                return
            ready = {descriptor for descriptor, _ in poll.poll(_POLL_SECONDS * 1000)}
            if not ready or self._store():
                continue
            # After the end of the shell, what it has printed is read, and nothing that others print later.
            if joined.status in ready:
                return
            # The shell runs and has closed its terminal: the terminal is ready at once, each time.
            _ready(joined.status, select.POLLIN)

    def _store(self) -> bool:
        """Store the output that is there. Return whether there was any."""
        try:
            data = os.read(self._terminal, _READ_BYTES)
        except OSError:  # nothing to read, or no process has the terminal open any more
            return False
        with self._changed:
            self._buffer.append(data)
            self._changed.notify_all()
        return bool(data)

    def _lags(self) -> bool:
        """Return whether there are viewers and all of them are far behind."""
        return bool(self._viewers) and all(self._buffer.end - each.cursor > LAG_BYTES for each in self._viewers)


def _ready(descriptor: int, event: int) -> None:
    poll = select.poll()
    poll.register(descriptor, event)
    poll.poll(_POLL_SECONDS * 1000)


def _set_size(terminal: int, size: Size) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", size.rows, size.columns, 0, 0))
