"""Retries of reads while descriptors or memory are used up, so that an existing file does not count as missing."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from runtime.errors import TEMPORARY

PATIENCE_SECONDS, PAUSE_SECONDS = 10.0, 0.2

T = TypeVar("T")


def patiently(read: Callable[[], T]) -> T:
    """Return the result of ``read``, called again for ``PATIENCE_SECONDS`` while descriptors or memory are used up.

    Raises what ``read`` raises, and the OSError of a lasting shortage, which ``is_shortage`` recognises.
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
    """Return whether the error is a temporary shortage and not a property of the file."""
    return isinstance(error, OSError) and error.errno in TEMPORARY
