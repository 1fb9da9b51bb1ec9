"""What comes in many small pieces, in fewer: each piece that is given has all that came meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import Empty, Full, Queue

PATIENCE = 0.1  # seconds from a first piece on in which others are waited for
_PIECES = 1024  # that wait at most; whoever sends more is not read meanwhile
_LARGEST = 2**20  # bytes after which no more are put together
_POLL = 1.0  # seconds after which one that has no room sees whether anybody is still there


def gathered(pieces: Iterator[bytes], patience: float = PATIENCE) -> Iterator[bytes]:
    """The same bytes in the same order. What ``pieces`` raises is raised after all that came before it.

    They are read by a thread of their own, which ends with them, or some time after nobody takes any more.
    """
    waiting: Queue[bytes | Exception | None] = Queue(_PIECES)
    over = threading.Event()
    threading.Thread(target=_read, args=(pieces, waiting, over), daemon=True, name="gathering").start()
    try:
        last: bytes | Exception | None = b""
        while isinstance(last, bytes):
            last = waiting.get()
            if isinstance(last, bytes):
                over.wait(patience)
                whole, last = _with_more(last, waiting)
                yield whole
        if last is not None:
            raise last
    finally:
        over.set()


def _with_more(first: bytes, waiting: Queue[bytes | Exception | None]) -> tuple[bytes, bytes | Exception | None]:
    """All that waits, in one, and the end where that has come."""
    found, size = [first], len(first)
    while size < _LARGEST:
        try:
            piece = waiting.get_nowait()
        except Empty:
            break
        if not isinstance(piece, bytes):
            return b"".join(found), piece
        found.append(piece)
        size += len(piece)
    return b"".join(found), b""


def _read(pieces: Iterator[bytes], waiting: Queue[bytes | Exception | None], over: threading.Event) -> None:
    end: Exception | None = None
    try:
        for piece in pieces:
            if not _put(piece, waiting, over):
                return
    except Exception as problem:  # noqa: BLE001  it is for whoever takes the pieces
        end = problem
    _put(end, waiting, over)


def _put(piece: bytes | Exception | None, waiting: Queue[bytes | Exception | None], over: threading.Event) -> bool:
    """False where nobody takes it any more."""
    while not over.is_set():
        try:
            waiting.put(piece, timeout=_POLL)
        except Full:
            continue
        return True
    return False
