"""Log lines of a program: what is kept and shown of them. Used by the agent and by the portal. Pure."""

from __future__ import annotations

from runtime import contract


def last_state(line: bytes) -> bytes:
    """Return what a terminal shows of a line with carriage returns. One of them is kept as a mark of progress."""
    *states, last = line.split(b"\r")
    if last:
        return b"\r" + last
    return next((state for state in reversed(states) if state), b"") + b"\r"


def shown(line: bytes, cut: int = 0) -> str:
    """Return the text to show for a line of which ``cut`` bytes have been left out already."""
    if b"\r" in line:
        line = last_state(line).strip(b"\r")
    length = len(line) + cut
    text = line[: contract.LINE_LIMIT].decode("utf-8", "backslashreplace")
    if length > contract.LINE_LIMIT or len(text) > contract.LINE_LIMIT:
        # A byte that is not UTF-8 is shown by four characters: the text may be longer than its bytes.
        return f"{text[: contract.LINE_LIMIT]} … [cut: this line had {length:,} bytes]"
    return text


class Cap:
    """Counter of the kept bytes of a replica's output, and of the dropped lines once the cap is reached."""

    def __init__(self, limit: int, kept: int = 0, dropped: int = 0) -> None:
        self.limit = limit
        self.kept = kept  # bytes
        self.dropped = dropped  # lines

    def admit(self, lines: list[str]) -> tuple[list[str], list[str]]:
        """Return the lines to keep, and the platform's remark about dropped lines: once, at the first of them."""
        if self.dropped:
            self.dropped += len(lines)
            return [], []
        size = sum(len(line.encode()) + 1 for line in lines)
        if self.kept + size <= self.limit:
            self.kept += size
            return lines, []
        return self._split(lines)

    def closing_lines(self) -> list[str]:
        """Return a line with the number of dropped lines if the cap was reached."""
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
