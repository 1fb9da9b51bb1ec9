"""Waiting for a condition: no test sleeps for a time that it hopes is long enough."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def until(
    what: str,
    look: Callable[[], Found],
    seconds: float = 30.0,
    *,
    every: float = 0.01,
    story: Callable[[], object] = str,
) -> Found:
    """What ``look`` finds as soon as it finds something (a true value).

    Fails with ``what`` and what ``story`` has to tell when the time is up.
    """
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"Waited {seconds:g} s in vain: {what}.\n{story()}"
        time.sleep(every)
    return found
