"""``python -m runtime.agent.pod_entrypoint -- COMMAND...``: entry point of a container, which becomes the agent.

After a restart of the replica, only the portal has the state of its earlier starts. The entry point requests the last
entry numbers, and what the image does not hold: the code and the dataset. It retries while the portal does not answer.
A later start does not wait long for the numbers: the cluster replaces lost replicas also while the portal has no
database. Its output waits in the spools until the agent has the numbers (``delivery.shipping``).
"""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from runtime import contract
from runtime.agent import __main__ as agent
from runtime.agent.portal_client import NotFetched, Portal
from runtime.agent.supervisor import STOP_SIGNALS
from runtime.contract import ReplicaState
from runtime.isolation import syscalls
from runtime.messages import training as messages

_Result = TypeVar("_Result")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0  # seconds
NUMBERS_PATIENCE = 5.0  # seconds that a later start waits for the numbers of earlier ones


class _StopRequested(Exception):
    """The process was asked to stop before it began."""


def main(arguments: Sequence[str]) -> int:
    """Return the exit code: the command's, or 128 plus the number of the signal that ended it."""
    # First of all: the token is in the environment of this process, and stays there.
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
    # The kernel sends the first process of a container no signal that it does not wait for.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        _prepare(Path(os.environ[contract.REPLICA_DIR]))
    except _StopRequested:
        return _end(messages.STOPPED_BEFORE_START(), None)
    except NotFetched as problem:
        return _end(messages.STOPPED_BEFORE_START() if problem.over else f"could not begin: {problem}", None)
    except OSError as problem:
        return _end(f"could not begin: {problem}", contract.EXIT_RESTART)
    return agent.main(arguments)


def _prepare(directory: Path) -> None:
    for name in ("work", "output", "tmp"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    open_portal = partial(
        Portal,
        os.environ[contract.INGEST_URL],
        os.environ[contract.ATTEMPT_ID],
        os.environ[contract.INGEST_TOKEN],
        traceparent=os.environ.get(contract.TRACEPARENT, ""),
    )
    portal = open_portal()
    (directory / contract.NUMBERS_FILE).write_text(json.dumps(_numbers(open_portal)), encoding="utf-8")
    if contract.runs_user_code(os.environ[contract.ROLE], os.environ):
        _provide_code(portal, directory / "work")
    if folder := os.environ.get(contract.FETCH_DATA):
        _retry_until_answered(lambda: portal.data(Path(folder)))


def _numbers(open_portal: Callable[..., Portal]) -> Mapping[str, int] | None:
    """Return the last entry numbers; None if a later start does not get them in time."""
    replica, number = os.environ[contract.REPLICA], int(os.environ.get(contract.START_NUMBER) or "1")
    if number == 1:
        first = open_portal()
        return _retry_until_answered(lambda: first.numbers(replica, number))
    portal = open_portal(connect=NUMBERS_PATIENCE, answer=NUMBERS_PATIENCE)
    try:
        return _retry_until_answered(lambda: portal.numbers(replica, number), time.monotonic() + NUMBERS_PATIENCE)
    except NotFetched as problem:
        if problem.over:
            raise
        return None


def _provide_code(portal: Portal, work: Path) -> None:
    """Copy the code to a private directory, so that files that the process writes beside it stay its own."""
    if source := os.environ.get(contract.CODE_DIR):
        shutil.copytree(source, work, dirs_exist_ok=True)
    else:
        _retry_until_answered(lambda: portal.code(work))


def _retry_until_answered(request: Callable[[], _Result], deadline: float = math.inf) -> _Result:
    """Repeat the request until it is answered.

    Raises NotFetched if it never will be, or was not until the deadline (monotonic), and _StopRequested if the process
    is to stop.
    """
    pause = _FIRST_PAUSE
    while True:
        try:
            return request()
        except NotFetched as problem:
            if problem.over or time.monotonic() >= deadline:
                raise
            sys.stderr.write(f"{problem}; asking again\n")
        if signal.sigtimedwait(STOP_SIGNALS, pause) is not None:
            raise _StopRequested
        pause = min(_LONGEST_PAUSE, pause * 2)


def _end(why: str, code: int | None) -> int:
    """Record an end before the beginning."""
    sys.stderr.write(why + "\n")
    state = ReplicaState(
        os.getpid(), 0, "exited", 0.0, code=code, why=why, start_number=int(os.environ.get(contract.START_NUMBER, "1"))
    )
    termination_file = os.environ.get(contract.TERMINATION_FILE)
    return state.write_termination_message(Path(termination_file)) if termination_file else contract.EXIT_ERROR


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
