"""Holds the program at an uncaught exception, if the agent wants that, so that its frames can be looked at.

The hook connects to a socket of the agent, names the exception, and gets the number of seconds: 0 means that the
program ends at once. Otherwise the program waits until the agent closes the connection. The agent decides which process
is the program, how long it is held, and when it is released.

Standard library only; any Python from 3.8 on.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # ``typing`` takes milliseconds to import, in each Python process
    from types import TracebackType
    from typing import Any

SOCKET_FILE = ".regatta-hold"
# Bytes of the request, a JSON object with the type of the exception, and of the answer, a number of seconds.
LONGEST_REQUEST, LONGEST_ANSWER = 1024, 32
_NAME = 100
_ANSWER_SECONDS = 5.0

# The exception and its traceback while the program is held.
held: tuple[BaseException, TracebackType | None] | None = None


def begin(directory: str) -> None:
    """Install the hook if the agent has a socket in ``directory``: it holds only programs of users."""
    path = os.path.join(directory, SOCKET_FILE)  # noqa: PTH118
    if os.path.exists(path):  # noqa: PTH110
        sys.excepthook = _holding(sys.excepthook, path, os.getpid())


def _holding(hook: Any, path: str, pid: int) -> Any:
    """Return a hook that calls ``hook``, which prints the traceback, and then holds the program."""

    def hook_and_hold(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
        try:
            hook(kind, error, where)
        finally:
            # KeyboardInterrupt is a request to end. A forked copy is not the program.
            if isinstance(error, Exception) and os.getpid() == pid:
                _hold(path, error, where)

    return hook_and_hold


def _hold(path: str, error: Exception, where: TracebackType | None) -> None:
    global held
    # The runtime limits the time that a failed trainer takes to exit.
    left = signal.alarm(0)
    try:
        sys.stdout.flush()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            link.settimeout(_ANSWER_SECONDS)
            link.connect(path)
            link.sendall(json.dumps({"exception": type(error).__name__[:_NAME]}).encode() + b"\n")
            if float(link.recv(LONGEST_ANSWER) or 0) > 0:
                held = error, where
                link.settimeout(None)
                link.recv(1)
    except BaseException:  # noqa: BLE001, S110  the program ends as it would without a hold
        pass
    finally:
        held = None
        signal.alarm(left)
