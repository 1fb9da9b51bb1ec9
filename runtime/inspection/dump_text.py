"""The text that ``faulthandler`` writes, as threads with frames. Pure. The text comes from user code's process."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

THREADS, FRAMES, TEXT = 200, 100, 300
_THREAD = re.compile(r"(?:Thread|Current thread) 0x([0-9a-fA-F]{1,16}) [^\n]{0,100}:")
_FRAME = re.compile(r'  File "([^\n]{0,2000})", line (\d{1,9}|\?\?\?) in ([^\n]{0,2000})')


@dataclass(frozen=True)
class DumpedThread:
    """``identity``: the thread's number in Python. ``frames``: file, line (0: unknown), function; innermost first."""

    identity: int
    frames: tuple[tuple[str, int, str], ...]


def parse(text: str) -> list[DumpedThread]:
    """Return the threads of the last dump in the text; other lines are ignored."""
    found: list[tuple[int, list[tuple[str, int, str]]]] = []
    for line in text.splitlines():
        if (thread := _THREAD.fullmatch(line.rstrip())) is not None:
            if len(found) == THREADS:
                break
            found.append((int(thread[1], 16), []))
        elif found and len(found[-1][1]) < FRAMES and (frame := _FRAME.fullmatch(line)) is not None:
            number = 0 if frame[2] == "???" else int(frame[2])
            found[-1][1].append((frame[1][-TEXT:], number, frame[3][:TEXT]))
    return list(_last_of_each([DumpedThread(identity, tuple(frames)) for identity, frames in found]))


def _last_of_each(threads: list[DumpedThread]) -> Iterator[DumpedThread]:
    """Keep the last stack of each thread: an earlier dump may precede."""
    last = {thread.identity: thread for thread in threads}
    return iter(last.values())
