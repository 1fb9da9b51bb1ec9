"""The caller's own terminal as that of a shell elsewhere: raw mode, size, input, and the key that leaves."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterator

LEAVE = b"\x1d"  # Ctrl-]
_READ_BYTES = 32 * 1024


@contextlib.contextmanager
def raw_mode() -> Iterator[None]:
    """Pass every key on unchanged inside the block, if the standard input is a terminal."""
    if not sys.stdin.isatty():
        yield
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setraw(descriptor)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def size() -> tuple[int, int]:
    """Return columns and rows of the terminal."""
    found = shutil.get_terminal_size()
    return found.columns, found.lines


class Keyboard:
    """Reads the standard input in a thread of its own. ``left``: whether the key that leaves was pressed."""

    def __init__(self, enter: Callable[[bytes], None], resized: Callable[[], None], leave: Callable[[], None]) -> None:
        self._enter, self._resized, self._leave = enter, resized, leave
        self._reading, self._writing = os.pipe()
        self.left = False

    def start(self) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGWINCH, lambda number, frame: os.write(self._writing, b"w") and None)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        descriptor = sys.stdin.fileno()
        watched = [descriptor, self._reading]
        while True:
            ready = select.select(watched, (), ())[0]
            if self._reading in ready:
                os.read(self._reading, _READ_BYTES)
                self._resized()
            if descriptor not in ready:
                continue
            data = os.read(descriptor, _READ_BYTES)
            before, key, _ = data.partition(LEAVE) if os.isatty(descriptor) else (data, b"", b"")
            if before:
                self._enter(before)
            if key:
                self.left = True
                self._leave()
                return
            if not data:
                watched.remove(descriptor)
                self._enter(b"\x04")
