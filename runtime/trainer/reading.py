"""Reading beside training: a thread reads, decodes and collates the next batches while the script trains on one.

Only batches of the task in hand are read ahead. Those of the task after it would run ``decode=`` on records that this
trainer is not known to be at: if that ended the process, another task would be blamed for it.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any, Generic, TypeVar

import numpy as np

# What waits to be trained may take so many bytes; a batch that is larger waits alone.
MOST_BYTES = 64 << 20
# Who leaves the loop waits so long for the record that is being decoded. Nothing is read after it in any case.
LEAVE_SECONDS = 5.0

T = TypeVar("T")
Items = Generator[T, None, None]


class ReadAhead(Generic[T]):
    """Iterates over what ``make`` gives, which a thread takes up to ``most`` items ahead, of ``most_bytes`` bytes.

    ``make`` is called with a function that passes an iterable on until the reading is to stop. What it raises is raised
    here, in its place and with its own traceback. ``stop`` ends the reading at the next item of such an iterable and
    drops what was read; ``close`` waits for that too. Any thread may call both.
    """

    def __init__(
        self, make: Callable[[Callable[[Iterable[Any]], Iterator[Any]]], Items[T]], most: int, most_bytes: int
    ) -> None:
        self._make = make
        self._most = most
        self._most_bytes = most_bytes
        self._changed = threading.Condition()
        self._read: deque[tuple[T, int]] = deque()
        self._bytes = 0
        self._stopped = False
        self._ended = False
        self._error: BaseException | None = None
        run = copy_context().run  # what the script has set for its thread, such as numpy.errstate, holds in decode= too
        self._thread = threading.Thread(target=run, args=(self._run,), name="reading", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        with self._changed:
            self._changed.wait_for(lambda: self._read or self._ended or self._stopped)
            if self._read:
                item, size = self._read.popleft()
                self._bytes -= size
                self._changed.notify_all()
                return item
            error, self._error = self._error, None
        if error is None:
            raise StopIteration
        try:
            raise error
        finally:
            del error  # its traceback holds this frame

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._read.clear()
            self._changed.notify_all()

    def close(self) -> None:
        self.stop()
        if threading.current_thread() is not self._thread:  # a loop that nobody holds may be collected in any thread
            self._thread.join(LEAVE_SECONDS)

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            with _closed(self._make(self._until_stopped)) as items:
                for item in items:
                    if not self._put(item):
                        break
        except BaseException as raised:  # noqa: BLE001  who asks for the next item gets it
            error = raised
        with self._changed:
            self._ended, self._error = True, None if self._stopped else error
            self._changed.notify_all()

    def _until_stopped(self, records: Iterable[Any]) -> Iterator[Any]:
        for record in records:
            if self._stopped:
                return
            yield record

    def _put(self, item: T) -> bool:
        """Have the item wait for its turn, once there is room for it; False where nobody wants more."""
        size = size_of(item)
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._has_room(size))
            if not self._stopped:
                self._read.append((item, size))
                self._bytes += size
                self._changed.notify_all()
            return not self._stopped

    def _has_room(self, size: int) -> bool:
        return not self._read or (len(self._read) < self._most and self._bytes + size <= self._most_bytes)


@contextmanager
def _closed(items: Items[T]) -> Iterator[Items[T]]:
    try:
        yield items
    finally:
        items.close()


def size_of(value: Any) -> int:
    """About how many bytes a batch takes: its arrays and texts, however they are nested."""
    if isinstance(value, np.ndarray) and value.dtype == object:
        return sum(map(size_of, value.flat))
    size = getattr(value, "nbytes", None)  # arrays, views of memory, tensors
    if isinstance(size, int):
        return size
    if isinstance(value, Mapping):
        return sum(map(size_of, value.values()))
    if isinstance(value, tuple | list):
        return sum(map(size_of, value))
    return sys.getsizeof(value)
