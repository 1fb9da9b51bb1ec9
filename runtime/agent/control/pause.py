"""The call ``pause``: stop the replica's program, or let it go on.

``{"how": "steps" | "signal", "on": bool, "target": n, "since": unix time}``. ``since`` is that of the pause. A request
about an earlier pause, or one to stop in a pause that was ended, is refused with ``outdated``.

With ``steps`` the process of the native runtime is asked over its link: a trainer stops before its next step, once its
version of the parameters is at least ``target``. A master always stops the clock of its queue only. With ``signal`` all
processes get SIGSTOP, and SIGCONT to go on. Answers ``{"stopped", "version"}``: whether the program stands, and the
version that it reported, or null. What the program reports is hostile input.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from runtime import contract
from runtime.agent.child_process import Child
from runtime.agent.control import processes
from runtime.agent.control.call import Call, Refusal

STEPS, SIGNAL = "steps", "signal"
# How long the agent waits for the report of the program, and until all processes have stopped.
REPORT_SECONDS, STOP_SECONDS = 0.5, 1.0
_LOOK_SECONDS = 0.01
_LARGEST = 2**53
_MOST_PROCESSES = 4096

# Sends a message to the process: ``Link.send``.
Send = Callable[..., None]


class Pause:
    """Pauses of one replica. ``report`` is called by the link, calls come from the portal, ``end`` from the agent."""

    def __init__(self, child: Child, send: Send) -> None:
        self._child, self._send = child, send
        self._lock = threading.Lock()
        self._changed = threading.Condition()
        self._stopped = False
        self._version: int | None = None
        self._reports = 0
        self._signalled = False
        self._ended = False
        self._signals = threading.Lock()
        # The latest request: when its pause began, and whether it ends that pause.
        self._latest = (0.0, False)

    def report(self, stopped: bool, version: int | None) -> None:
        """Take a report of the program."""
        with self._changed:
            self._stopped, self._version = stopped, version
            self._reports += 1
            self._changed.notify_all()

    def end(self) -> None:
        """Let the processes go on, because the replica is to stop: a stopped process does not see SIGTERM."""
        with self._signals:
            self._ended = True
            if self._signalled:
                self._send_all(signal.SIGCONT)

    def call(self, call: Call) -> Mapping[str, Any]:
        how, on, target, since = (call.request.get(name) for name in ("how", "on", "target", "since"))
        if how not in (STEPS, SIGNAL) or not isinstance(on, bool) or not _is_whole(target):
            raise Refusal("invalid", "how is steps or signal, on is true or false, and target is a whole number.")
        if not isinstance(since, int | float):
            raise Refusal("invalid", "since is the unix time at which the pause began.")
        by_link = how == STEPS or call.settings.role == contract.MASTER
        if not by_link and not call.settings.runs_user_code:
            raise Refusal("unavailable", "This replica runs no code of a user.")
        with self._lock:
            # Requests of several processes of the portal may arrive in another order than they were made.
            if (order := (float(since), not on)) < self._latest:
                raise Refusal("outdated", "A later request has come.")
            self._latest = order
            return self._by_steps(on, int(target or 0)) if by_link else self._by_signal(on)

    def _by_steps(self, on: bool, target: int) -> Mapping[str, Any]:
        with self._changed:
            seen = self._reports
        self._send(contract.PAUSE, on=on, target=target)
        with self._changed:
            self._changed.wait_for(lambda: self._reports > seen, REPORT_SECONDS)
            known = self._reports > seen
            return {"stopped": self._stopped and known, "version": self._version if known else None}

    def _by_signal(self, on: bool) -> Mapping[str, Any]:
        deadline = time.monotonic() + STOP_SECONDS
        self._signal(on)
        while on and not (done := self._all_stopped()) and time.monotonic() < deadline:
            # A process that was just started is found in the next round.
            self._signal(on)
            time.sleep(_LOOK_SECONDS)
        return {"stopped": on and done, "version": None}

    def _signal(self, on: bool) -> None:
        with self._signals:
            if on and self._ended:
                return  # the replica is to stop
            self._signalled = on
            self._send_all(signal.SIGSTOP if on else signal.SIGCONT)

    def _all_stopped(self) -> bool:
        found = processes.of(self._child, _MOST_PROCESSES)
        return bool(found) and all(process.is_stopped for process in found)

    def _send_all(self, number: signal.Signals) -> None:
        """Send the signal to all processes, parents first: a stopped parent starts no other."""
        for process in processes.of(self._child, _MOST_PROCESSES):
            if not (number == signal.SIGSTOP and process.is_stopped):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(process.pid, number)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LARGEST
