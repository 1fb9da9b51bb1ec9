"""Text of a stream as a terminal shows it: carriage returns and backspaces overwrite (pure).

A progress bar that redraws one line for hours stays one line.
"""

from __future__ import annotations

import re

_PARTS = re.compile(r"[\n\r\b]|[^\n\r\b]+")


class StreamText:
    """Text that grows by pieces. Adding costs time in the length of the piece, unless the piece overwrites."""

    def __init__(self, text: str = "") -> None:
        self._done: list[str] = []
        self._line: list[str] = []
        self._width = 0
        # Position in the last line; behind its end only after a carriage return or backspace.
        self._column = 0
        self.length = 0
        self.add(text)

    def add(self, text: str) -> None:
        """Append a piece."""
        if "\r" not in text and "\b" not in text and self._column == self._width:
            self._add_plain(text)
            return
        for part in _PARTS.findall(text):
            if part == "\n":
                self._end_line()
            elif part == "\r":
                self._column = 0
            elif part == "\b":
                self._column = max(0, self._column - 1)
            else:
                self._write(part)

    def _add_plain(self, text: str) -> None:
        *lines, last = text.split("\n")
        if lines:
            self._done.append("".join(self._line) + "\n".join(lines) + "\n")
            self._line, self._width = [], 0
        if last:
            self._line.append(last)
        self._width += len(last)
        self._column = self._width
        self.length += len(text)

    def _end_line(self) -> None:
        self._done.append("".join(self._line) + "\n")
        self._line, self._width, self._column = [], 0, 0
        self.length += 1

    def _write(self, part: str) -> None:
        if self._column == self._width:
            self._line.append(part)
        else:
            line = "".join(self._line)
            self._line = [line[: self._column] + part + line[self._column + len(part) :]]
        self._column += len(part)
        grown = max(self._width, self._column)
        self.length += grown - self._width
        self._width = grown

    def __str__(self) -> str:
        """Return text that shows the same, and after which further pieces show the same."""
        line = "".join(self._line)
        moved = "\r" + line[: self._column] if self._column < self._width else ""
        return "".join(self._done) + line + moved
