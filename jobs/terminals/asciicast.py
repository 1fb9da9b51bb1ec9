"""Recordings in the format asciicast 2: a header line, then a line ``[seconds, "o" or "r", text]`` for each event.

Only output and sizes are recorded. Input is in them as far as the program shows it; a password is not shown. Pure.
"""

from __future__ import annotations

import codecs
import json


class Writer:
    """Encodes a recording. Characters that are split between two pieces of output are joined."""

    def __init__(self, columns: int, rows: int, title: str, timestamp: int) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        header = {"version": 2, "width": columns, "height": rows, "timestamp": timestamp, "title": title}
        self._lines = [json.dumps(header, ensure_ascii=False)]
        self.pending = 0

    def output(self, seconds: float, data: bytes) -> None:
        """Add output."""
        if text := self._decoder.decode(data):
            self._add(seconds, "o", text)

    def resize(self, seconds: float, columns: int, rows: int) -> None:
        """Add a change of the size."""
        self._add(seconds, "r", f"{columns}x{rows}")

    def take(self) -> bytes:
        """Return the complete lines that were added since the last call."""
        lines, self._lines, self.pending = self._lines, [], 0
        return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")

    def _add(self, seconds: float, kind: str, text: str) -> None:
        line = json.dumps([round(seconds, 6), kind, text], ensure_ascii=False)
        self._lines.append(line)
        self.pending += len(line)
