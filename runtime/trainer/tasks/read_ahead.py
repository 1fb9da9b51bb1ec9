"""Background reading: a thread reads, decodes and collates the next batches while the script trains on one.

It continues with the next tasks, but decodes nothing of them before they are begun. That would run ``decode=`` on
records that this trainer has not reported, and if it ended the process, another task would be blamed for it.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import copy_context
from itertools import chain, islice
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

import numpy as np

# The limit of batches waiting to be trained on, in bytes; a larger batch waits alone.
MOST_BYTES = 64 << 20
# How long leaving the loop waits for the record that is being decoded. Nothing is read after it in any case.
LEAVE_SECONDS = 5.0

T = TypeVar("T")
Items = Generator[T, None, None]


class Capacity:
    """The capacity for waiting batches of all tasks: up to ``most`` items of ``most_bytes`` bytes, but always one."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self.changed = threading.Condition()
        self._most = most
        self._most_bytes = most_bytes
        self._items = 0
        self._bytes = 0

    def has(self, size: int) -> bool:
        return not self._items or (self._items < self._most and self._bytes + size <= self._most_bytes)

    def take(self, size: int, items: int = 1) -> None:
        """Take capacity; negative numbers free it. ``changed`` must be held, as for all methods."""
        self._items += items
        self._bytes += size
        self.changed.notify_all()


class Readers:
    """A thread that reads tasks one after the other, in the order of ``start``, and the capacity for them."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self.capacity = Capacity(most, most_bytes)
        self._due: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self, read: Callable[[], object]) -> None:
        self._due.put(read)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="reading", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End the thread. Its readings must be stopped before; that is awaited, but for a limited time."""
        self._due.put(None)
        if self._thread is not None and threading.current_thread() is not self._thread:  # a loop without references may
            self._thread.join(LEAVE_SECONDS)  # be collected in any thread

    def _run(self) -> None:
        while (read := self._due.get()) is not None:
            read()


class ReadAhead(Generic[T]):
    """Iterates over the items of ``make``, which a thread of ``readers`` takes ahead, within their capacity.

    ``make`` is called with a function that passes an iterable on until the reading is to stop. Its exception is raised
    here, in order and with its own traceback. Of such an iterable at most ``before`` elements are taken before
    ``begin`` is called, and none is passed on (None: without waiting for that). ``stop`` ends the reading at the next
    element and drops what was read. Any thread may call both.
    """

    def __init__(
        self,
        make: Callable[[Callable[[Iterable[Any]], Iterator[Any]]], Items[T]],
        readers: Readers,
        before: int | None = None,
    ) -> None:
        self._make = make
        self._before = before
        self._capacity = readers.capacity
        self._changed = readers.capacity.changed
        self._read: deque[tuple[T, int]] = deque()
        self._begun = False
        self._stopped = False
        self._ended = False
        self._error: BaseException | None = None
        # what the script has set for its thread, such as numpy.errstate, applies in decode= too
        run = copy_context().run
        readers.start(lambda: run(self._run))

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        with self._changed:
            self._changed.wait_for(lambda: self._read or self._ended or self._stopped)
            if self._read:
                item, size = self._read.popleft()
                self._capacity.take(-size, -1)
                return item
            error, self._error = self._error, None
        if error is None:
            raise StopIteration
        try:
            raise error
        finally:
            del error  # its traceback references this frame

    def begin(self) -> None:
        """The task is begun: everything needed to read it may be done."""
        with self._changed:
            self._begun = True
            self._changed.notify_all()

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._capacity.take(-sum(size for _item, size in self._read), -len(self._read))
            self._read.clear()

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            with _closed(self._make(self._wanted)) as items:
                for item in items:
                    if not self._put(item):
                        break
        except BaseException as raised:  # noqa: BLE001  ``__next__`` raises it
            error = raised
        with self._changed:
            self._ended, self._error = True, None if self._stopped else error
            self._changed.notify_all()

    def _wanted(self, records: Iterable[Any]) -> Iterator[Any]:
        rest = iter(records)
        if self._before is not None:
            first = list(islice(rest, self._before))
            with self._changed:
                self._changed.wait_for(lambda: self._begun or self._stopped)
            rest = chain(first, rest)
        for record in rest:
            if self._stopped:
                return
            yield record

    def _put(self, item: T) -> bool:
        """Add the item once there is capacity for it; False if no more are needed."""
        size = size_of(item)
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._capacity.has(size))
            if not self._stopped:
                self._read.append((item, size))
                self._capacity.take(size)
            return not self._stopped


@contextmanager
def _closed(items: Items[T]) -> Iterator[Items[T]]:
    try:
        yield items
    finally:
        items.close()


def size_of(value: Any) -> int:
    """The approximate size of a batch in bytes: its arrays and texts, at any depth."""
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
