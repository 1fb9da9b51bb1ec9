"""Reading again where descriptors or memory are used up, so that a file that is there does not count as missing."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from runtime.errors import TEMPORARY

PATIENCE_SECONDS, PAUSE_SECONDS = 10.0, 0.2

T = TypeVar("T")


def patiently(read: Callable[[], T]) -> T:
    """What ``read`` returns. It is called again for ``PATIENCE_SECONDS`` while descriptors or memory are used up.

    Raises what it raises, and the OSError of a shortage that lasts; ``is_shortage`` recognises that.
    """
    give_up = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return read()
        except OSError as error:
            if not is_shortage(error) or time.monotonic() >= give_up:
                raise
            time.sleep(PAUSE_SECONDS)


def is_shortage(error: Exception) -> bool:
    """Whether the error is of the moment and says nothing of the file."""
    return isinstance(error, OSError) and error.errno in TEMPORARY
