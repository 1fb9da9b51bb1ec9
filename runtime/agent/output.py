"""Bytes of stdout and stderr become lines. Pure: the clock is passed in, the lines are handed back."""

from __future__ import annotations

import json
from json.encoder import encode_basestring

from runtime import contract

STDOUT, STDERR, SYSTEM = "stdout", "stderr", "system"

# A prompt or a row of dots without a line break is shown after this long ...
PARTIAL_SECONDS = 1.0
# ... and a progress bar, which redraws its line, no more often than this.
PROGRESS_SECONDS = 10.0


class LineSplitter:
    """Cuts one stream into lines. Holds at most ``contract.LINE_LIMIT`` bytes of an unfinished line."""

    def __init__(self) -> None:
        self._partial = b""
        self._cut = 0  # bytes of the unfinished line that are not kept
        self._began = 0.0

    def feed(self, chunk: bytes, now: float) -> list[str]:
        """The lines that ``chunk`` finishes."""
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
        """The unfinished line if it has waited long enough to be shown as it is."""
        patience = PROGRESS_SECONDS if b"\r" in self._partial else PARTIAL_SECONDS
        return self.end() if self._partial and now - self._began >= patience else []

    def end(self) -> list[str]:
        """The unfinished line, if there is one."""
        return [self._finish()] if self._partial or self._cut else []

    def _grow(self, piece: bytes, now: float) -> None:
        if not piece:
            return
        if not self._partial:
            self._began = now
        if b"\r" in piece:
            # Only the last state of a line that redraws itself will be shown.
            self._partial, self._cut = _keep_last_state(self._partial + piece), 0
        else:
            room = max(0, contract.LINE_LIMIT - len(self._partial))
            self._cut += len(piece[room:])
            self._partial += piece[:room]
        if len(self._partial) > contract.LINE_LIMIT:
            self._cut += len(self._partial) - contract.LINE_LIMIT
            self._partial = self._partial[: contract.LINE_LIMIT]

    def _finish(self) -> str:
        line, cut = self._partial, self._cut
        self._partial, self._cut = b"", 0
        return _text(line, cut)


def _whole_lines(lines: list[bytes]) -> list[str]:
    return [_text(line, 0) for line in lines]


def _keep_last_state(line: bytes) -> bytes:
    """What a terminal would show of a line with carriage returns, with one of them kept as a mark of progress."""
    *states, last = line.split(b"\r")
    if last:
        return b"\r" + last
    return next((state for state in reversed(states) if state), b"") + b"\r"


def _text(line: bytes, cut: int) -> str:
    """What is shown of a line of which ``cut`` bytes have been left out already."""
    if b"\r" in line:
        line = _keep_last_state(line).strip(b"\r")
    length = len(line) + cut
    text = line[: contract.LINE_LIMIT].decode("utf-8", "backslashreplace")
    if length > contract.LINE_LIMIT or len(text) > contract.LINE_LIMIT:
        # A byte that is no UTF-8 is shown by four characters: the text may be longer than its bytes.
        return f"{text[: contract.LINE_LIMIT]} … [cut: this line had {length:,} bytes]"
    return text


class Cap:
    """Counts what is kept of a replica's output, and what is not once the cap is reached."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.kept = 0
        self.dropped = 0  # lines

    def admit(self, lines: list[str]) -> tuple[list[str], list[str]]:
        """The lines that are kept, and what the platform has to say about the others: once, at the first."""
        if self.dropped:
            self.dropped += len(lines)
            return [], []
        size = sum(len(line.encode()) + 1 for line in lines)
        if self.kept + size <= self.limit:
            self.kept += size
            return lines, []
        return self._split(lines)

    def closing_words(self) -> list[str]:
        """How much was not kept, if the cap was reached."""
        if not self.dropped:
            return []
        return [f"{self.dropped:,} lines beyond the log cap of {_mebibytes(self.limit)} were not kept"]

    def _split(self, lines: list[str]) -> tuple[list[str], list[str]]:
        kept = 0
        for line in lines:
            size = len(line.encode()) + 1
            if self.kept + size > self.limit:
                break
            self.kept += size
            kept += 1
        self.dropped = len(lines) - kept
        return lines[:kept], [f"log cap of {_mebibytes(self.limit)} reached; the rest is not kept"]


def _mebibytes(size: int) -> str:
    return f"{size / 2**20:.4g} MiB"


def line_entries(at: float, stream: str, lines: list[str]) -> list[str]:
    """The lines as entries of the spool: ``[unix time, stream, text]`` in JSON."""
    head = f'[{at:.6f},"{stream}",'
    return [f"{head}{encode_basestring(line)}]" for line in lines]


def event_entry(at: float, kind: str, text: str) -> str:
    return json.dumps([at, kind, text], ensure_ascii=False)
