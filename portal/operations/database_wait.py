"""Waiting for the database at a start of the portal."""

from __future__ import annotations

import time
from collections.abc import Callable

from django.db import OperationalError

SECONDS = 300.0  # about the time of a new volume, and of a large recovery
_PAUSE_SECONDS, _REPORT_SECONDS = 1.0, 15.0


def wait_for_database(
    connect: Callable[[], object],
    write: Callable[[str], object],
    *,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], object] = time.sleep,
) -> None:
    """Call ``connect`` until it succeeds, and write why it does not, at first and then every 15 seconds.

    Raises OperationalError, the last one, after SECONDS.
    """
    began, reported = clock(), -_REPORT_SECONDS
    while True:
        try:
            connect()
        except OperationalError as error:
            waited = clock() - began
            if waited >= SECONDS:
                raise
            if waited - reported >= _REPORT_SECONDS:
                reported = waited
                write(f"The database does not answer yet: {' '.join(str(error).split())}")
            pause(_PAUSE_SECONDS)
        else:
            return
