"""What the portal can use of a running replica: the control channel with its calls, terminals and holds."""

from __future__ import annotations

import socket
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

from runtime.agent.child_process import Child
from runtime.agent.control import hold, hold_calls, server
from runtime.agent.control.calls import CALLS
from runtime.agent.control.hold import Hold, Report
from runtime.agent.control.pause import Pause
from runtime.agent.control.server import ControlServer
from runtime.agent.settings import Settings
from runtime.messages import training as messages

if TYPE_CHECKING:
    from runtime.agent.terminal.guest import Guests


class Listening(NamedTuple):
    """The sockets of the control channel and of holds; None: not opened."""

    control: socket.socket | None = None
    holds: socket.socket | None = None

    def close(self) -> None:
        for opened in filter(None, self):
            opened.close()


def listen(settings: Settings) -> tuple[Listening, str]:
    """Open the sockets, before user code runs; with a remark for the log. A replica also runs without them."""
    try:
        control = server.listener(settings)
    except OSError as error:
        return Listening(), messages.CONTROL_NOT_OPENED(problem=error.strerror)
    try:
        return Listening(control, hold.listener(settings)), ""
    except OSError as error:
        return Listening(control), messages.HOLD_NOT_OPENED(problem=error.strerror)


class Service:
    """The service of one started replica. It begins at once."""

    def __init__(
        self,
        settings: Settings,
        command: Sequence[str],
        child: Child,
        listening: Listening,
        report: Report,
        pause: Pause,
    ) -> None:
        self._pause = pause
        self._guests: Guests | None = None
        self._server: ControlServer | None = None
        self._hold = Hold(settings, child, listening.holds, report) if listening.holds is not None else None
        if self._hold is not None:
            self._hold.start()
        if listening.control is not None:
            # Loaded only now: the process should not wait for it.
            from runtime.agent.terminal.guest import Guests
            from runtime.agent.terminal.handlers import Handlers
            from runtime.agent.tunnel.handler import connect

            self._guests = Guests(settings, command, child)
            terminals = Handlers(self._guests, user_code=settings.runs_user_code).calls()
            calls = {**CALLS, **terminals, **hold_calls.calls(self._hold), "pause": pause.call, "connect": connect}
            self._server = ControlServer(settings, child, listening.control, calls)
            self._server.start()

    def pids(self) -> Collection[int]:
        """Return the processes of terminals."""
        return self._guests.pids() if self._guests is not None else ()

    def release(self) -> None:
        """Release a program that is held or stopped by a pause, because the replica is to stop."""
        self._pause.end()
        if self._hold is not None:
            self._hold.end()

    def close_terminals(self) -> None:
        if self._guests is not None:
            self._guests.close()

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
