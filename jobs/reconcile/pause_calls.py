"""Stops the programs of an attempt's replicas through their agents, or lets them go on."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from jobs.backends.base import AttemptRef
from jobs.control.connection import ControlConnection, connect
from jobs.control.errors import ControlError, NotRunning
from jobs.lifecycle.pauses import STEPS, Pause, Standing, is_done, target_of

CONNECT_SECONDS, CALL_SECONDS = 3.0, 4.0
_ROUND_SECONDS = 0.1


def bring_about(ref: AttemptRef, names: Sequence[str], pause: Pause, seconds: float) -> bool:
    """Ask all agents at the same moment, in rounds. Return whether all have done it within ``seconds``."""
    deadline = time.monotonic() + seconds
    target = 0
    while names:
        found = _asked(ref, names, pause, target)
        if is_done(found, pause.on):
            return True
        if time.monotonic() >= deadline:
            return False
        target = max(target, target_of(found)) if pause.how == STEPS else 0
        time.sleep(_ROUND_SECONDS)
    return True


def _asked(ref: AttemptRef, names: Sequence[str], pause: Pause, target: int) -> list[Standing]:
    together = threading.Barrier(len(names))

    def ask(name: str) -> Standing:
        try:
            with _connected(ref, name, together) as agent:
                answer = agent.call("pause", CALL_SECONDS, how=pause.how, on=pause.on, target=target, since=pause.since)
        except NotRunning:
            return Standing(pause.on)  # it has ended, or is started again: the next look asks it
        except ControlError:
            return Standing(not pause.on)
        version = answer.get("version")
        known = isinstance(version, int) and not isinstance(version, bool)
        return Standing(answer.get("stopped") is True, version if known else None)

    with ThreadPoolExecutor(max_workers=len(names), thread_name_prefix="pause") as pool:
        return list(pool.map(ask, names))


def _connected(ref: AttemptRef, name: str, together: threading.Barrier) -> ControlConnection:
    """Connect, and wait until all others have connected or failed, so that all are asked at the same moment."""
    try:
        agent = connect(ref, name, CONNECT_SECONDS)
    except ControlError:
        together.abort()
        raise
    with contextlib.suppress(threading.BrokenBarrierError):
        together.wait(CONNECT_SECONDS)
    return agent
