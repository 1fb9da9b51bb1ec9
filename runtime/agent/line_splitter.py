"""Splitter of stdout and stderr into lines. Pure: the clock is passed in, and the lines are returned."""

from __future__ import annotations

import json
from json.encoder import encode_basestring

from runtime import contract
from runtime.log_lines import last_state, shown
from runtime.messages import to_json

# ``AGENT`` is the stream of the agent's own remarks.
STDOUT, STDERR, AGENT = "stdout", "stderr", "agent"

# A prompt or a row of dots without a line break is shown after this long ...
PARTIAL_SECONDS = 1.0
# ... and a progress bar, which redraws its line, at most once per this interval.
PROGRESS_SECONDS = 10.0


class LineSplitter:
    """Splitter of one stream. Holds at most ``contract.LINE_LIMIT`` bytes of an unfinished line."""

    def __init__(self) -> None:
        self._partial = b""
        self._cut = 0  # bytes of the unfinished line that were dropped
        self._began = 0.0

    def feed(self, chunk: bytes, now: float) -> list[str]:
        """Return the lines that ``chunk`` finishes."""
        head, line_break, rest = chunk.partition(b"\n")
        if not line_break:
            self._grow(chunk, now)
            return []
        self._grow(head, now)
        first = self._finish()
        *middle, last = rest.split(b"\n")
        lines = [first, *_whole_lines(middle)]
        self._grow(last, now)
        return lines

    def due(self, now: float) -> list[str]:
        """Return the unfinished line if it is old enough to be shown as it is."""
        delay = PROGRESS_SECONDS if b"\r" in self._partial else PARTIAL_SECONDS
        return self.end() if self._partial and now - self._began >= delay else []

    def end(self) -> list[str]:
        """Return the unfinished line, if there is one."""
        return [self._finish()] if self._partial or self._cut else []

    def _grow(self, piece: bytes, now: float) -> None:
        if not piece:
            return
        if not self._partial:
            self._began = now
        if b"\r" in piece:
            # Only the last state of a line that redraws itself is shown.
            self._partial, self._cut = last_state(self._partial + piece), 0
        else:
            capacity = max(0, contract.LINE_LIMIT - len(self._partial))
            self._cut += len(piece[capacity:])
            self._partial += piece[:capacity]
        if len(self._partial) > contract.LINE_LIMIT:
            self._cut += len(self._partial) - contract.LINE_LIMIT
            self._partial = self._partial[: contract.LINE_LIMIT]

    def _finish(self) -> str:
        line, cut = self._partial, self._cut
        self._partial, self._cut = b"", 0
        return shown(line, cut)


def _whole_lines(lines: list[bytes]) -> list[str]:
    return [shown(line) for line in lines]


def line_entries(at: float, stream: str, lines: list[str]) -> list[str]:
    """Return the lines as entries of the spool: ``[unix time, stream, text]`` in JSON."""
    head = f'[{at:.6f},"{stream}",'
    return [f"{head}{encode_basestring(line)}]" for line in lines]


def event_entry(at: float, kind: str, text: str) -> str:
    return json.dumps([at, kind, to_json(text)], ensure_ascii=False)
