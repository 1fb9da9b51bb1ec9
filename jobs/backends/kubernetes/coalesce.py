"""Coalescing of many small pieces of bytes into fewer: each piece yielded contains all that arrived meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import Empty, Full, Queue

PATIENCE = 0.1  # seconds to wait for more pieces after the first
_PIECES = 1024  # capacity of the queue; the source is not read while it is full
_LARGEST = 2**20  # bytes after which no more pieces are joined
_POLL = 1.0  # seconds after which a reader blocked by a full queue checks whether the consumer has closed


def gathered(pieces: Iterator[bytes], patience: float = PATIENCE) -> Iterator[bytes]:
    """Yield the same bytes in the same order. An exception of ``pieces`` is raised after all bytes before it.

    A separate thread reads ``pieces``. It ends with them, or at the first piece after the consumer has closed.
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
    """Join the pieces in the queue; return them with the end of the stream (None or an exception), else ``b""``."""
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
    except Exception as problem:  # noqa: BLE001  raised again in the consumer
        end = problem
    _put(end, waiting, over)


def _put(piece: bytes | Exception | None, waiting: Queue[bytes | Exception | None], over: threading.Event) -> bool:
    """Put a piece on the queue; return False if the consumer has closed."""
    while not over.is_set():
        try:
            waiting.put(piece, timeout=_POLL)
        except Full:
            continue
        return True
    return False
