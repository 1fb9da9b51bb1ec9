"""Waiting for a condition: no test sleeps for a time that it hopes is long enough.

``tests/test_no_sleeping.py`` refuses other calls of ``sleep`` in tests.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")

# A look is often a question to a server, which works instead of answering it: the longer it takes, the less often it
# is asked. What is waited for is seen by a tenth of its time too late, and by no more than LONGEST_PAUSE seconds.
SHARE, LONGEST_PAUSE = 0.1, 0.25


def until(
    what: str,
    look: Callable[[], Found],
    seconds: float = 30.0,
    *,
    every: float = 0.01,
    story: Callable[[], object] = str,
) -> Found:
    """What ``look`` finds as soon as it finds something (a true value).

    ``every`` is the first pause between two looks in seconds; later ones are longer. Fails with ``what`` and what
    ``story`` has to tell when the time is up.
    """
    began = time.monotonic()
    while not (found := look()):
        waited = time.monotonic() - began
        assert waited < seconds, f"Waited {seconds:g} s in vain: {what}.\n{story()}"
        time.sleep(max(every, min(SHARE * waited, LONGEST_PAUSE)))
    return found


async def soon(what: str, look: Callable[[], object], seconds: float = 10.0) -> None:
    """Let the event loop work until ``look`` finds something. Fails with ``what`` when the time is up."""
    deadline = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < deadline, f"Waited {seconds:g} s in vain: {what}."
        await asyncio.sleep(0.01)


def let_pass(seconds: float) -> None:
    """Let time pass where the time itself is what is tested: on a server that no test can give a clock."""
    time.sleep(seconds)
