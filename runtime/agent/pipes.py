"""Reader of the process's output, as fast as the process prints it."""

from __future__ import annotations

import contextlib
import os
import selectors
import sys
import threading
import time
from collections.abc import Callable, Mapping

from runtime.agent.line_splitter import LineSplitter

_CHUNK = 256 * 1024
_TICK_SECONDS = 0.25

# Called with the unix time, the stream's name and its lines.
Sink = Callable[[float, str, list[str]], None]


class PipeReader:
    """One thread that empties all pipes. It splits the output into lines and forwards them at once."""

    def __init__(self, pipes: Mapping[int, str], sink: Sink) -> None:
        """Prepare the reader. ``pipes`` maps each non-blocking read end to its stream's name."""
        self._sink = sink
        self._failed = False
        self._streams = {pipe: (name, LineSplitter()) for pipe, name in pipes.items()}
        self._thread = threading.Thread(target=self._run, name="output", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def drain(self, timeout: float) -> None:
        """Wait for the end of all pipes. Every process that could write must have ended."""
        self._thread.join(timeout)

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            for pipe in self._streams:
                selector.register(pipe, selectors.EVENT_READ)
            while selector.get_map():
                for key, _ in selector.select(_TICK_SECONDS):
                    if not self._read(key.fd):
                        selector.unregister(key.fd)
                self._show_partial_lines()

    def _read(self, pipe: int) -> bool:
        """Read what is available. Returns False at the end of the pipe."""
        name, lines = self._streams[pipe]
        chunk = b""
        with contextlib.suppress(BlockingIOError):
            chunk = os.read(pipe, _CHUNK)
            if not chunk:
                self._forward(time.time(), name, lines.end())
                os.close(pipe)
                return False
        now = time.time()
        self._forward(now, name, lines.feed(chunk, now))
        return True

    def _show_partial_lines(self) -> None:
        now = time.time()
        for name, lines in self._streams.values():
            if partial := lines.due(now):
                self._forward(now, name, partial)

    def _forward(self, at: float, name: str, lines: list[str]) -> None:
        """Pass lines to the sink.

        If it fails, only these lines are lost: a process blocks at a pipe that nothing empties.
        """
        try:
            self._sink(at, name, lines)
        except Exception as error:  # noqa: BLE001
            if not self._failed:
                self._failed = True
                sys.stderr.write(f"Lines of {name} could not be taken in and are missing in the log: {error!r}\n")
