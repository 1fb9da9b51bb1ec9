"""Background thread that passes items to a callback until its source ends or it is stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Watch(Generic[Item]):
    """Calls ``action`` with each item of ``source``, which receives a function that returns whether to stop.

    An exception of either ends the watch and is stored for ``wait``.
    """

    def __init__(
        self, source: Callable[[Callable[[], bool]], Iterator[Item]], action: Callable[[Item], object]
    ) -> None:
        self._source = source
        self._deed = action
        self._error: BaseException | None = None
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run, name="regatta-watch", daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """Stop after the current item. Returns immediately; may be called twice, and from ``action``."""
        self._enough.set()

    def wait(self, timeout: float | None = None) -> None:
        """Return when the watch has ended. Raises its error, or TimeoutError after ``timeout`` seconds."""
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise TimeoutError(f"The watch has not finished after {timeout:g} s.")
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            for item in self._source(self._enough.is_set):
                if self._enough.is_set():
                    return
                self._deed(item)
        except Exception as error:  # noqa: BLE001  every error is raised to the waiting caller
            self._error = error
