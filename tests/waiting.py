"""Waiting for a condition: no test sleeps for a fixed time.

``tests/suite/test_no_sleeping.py`` refuses other calls of ``sleep`` in tests.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")

# A poll often costs work of a server: the longer the wait, the less often it polls. So the end of a wait is noticed
# late by a tenth of its duration, and by at most LONGEST_PAUSE seconds.
SHARE, LONGEST_PAUSE = 0.1, 0.25


def until(
    what: str,
    look: Callable[[], Found],
    seconds: float = 30.0,
    *,
    every: float = 0.01,
    story: Callable[[], object] = str,
) -> Found:
    """Return the result of ``look`` as soon as it is true.

    ``every`` is the first pause between two polls in seconds; later ones are longer. Fails with ``what`` and the output
    of ``story`` on timeout.
    """
    began = time.monotonic()
    while not (found := look()):
        waited = time.monotonic() - began
        assert waited < seconds, f"Waited {seconds:g} s in vain: {what}.\n{story()}"
        time.sleep(max(every, min(SHARE * waited, LONGEST_PAUSE)))
    return found


async def soon(what: str, look: Callable[[], object], seconds: float = 60.0) -> None:
    """Run the event loop until ``look`` returns a true value. Fails with ``what`` on timeout."""
    deadline = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < deadline, f"Waited {seconds:g} s in vain: {what}."
        await asyncio.sleep(0.01)


def let_pass(seconds: float) -> None:
    """Let time pass where the time itself is tested: on a server whose clock a test cannot replace."""
    time.sleep(seconds)
