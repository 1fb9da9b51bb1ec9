"""The calls ``terminal`` and ``exec``. Each keeps its connection until the program or the connection has ended.

``terminal``: ``{"session"?, "after"?, "columns", "rows"}``. Without a session, a new one is created. Answers
``{"t": "session", "session", "from"}``, then output as bytes from the position ``from`` on,
``{"t": "gap", "bytes"}`` for output that is no longer kept, and ``{"t": "exit", "code"}``. Accepts input as bytes,
``{"op": "resize", "columns", "rows"}`` and ``{"op": "end"}``.

``exec``: ``{"command": [...]}``. Answers ``{"t": "started"}``, then output as bytes after a byte for the stream (1:
standard output, 2: standard error), and ``{"t": "exit", "code"}``. Accepts input as bytes and ``{"op": "end_input"}``.

Both answer ``{"t": "error", "code", "detail"}`` to a call that they refuse. A replica that runs no user code refuses
all of them: its process belongs to the platform.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from typing import Any

from runtime.agent.control.calls import Call
from runtime.agent.terminal.commands import Command
from runtime.agent.terminal.frames import Connection, ControlFrames, Frame
from runtime.agent.terminal.guest import Guests, NotLaunched
from runtime.agent.terminal.session import Session, Size, Viewer
from runtime.agent.terminal.sessions import MOST_SESSIONS, Sessions, TooManySessions
from runtime.messages import terminal as messages

Request = Mapping[str, Any]
Handler = Callable[[Connection, Request], None]

MOST_COMMANDS = 16
MOST_ARGUMENTS, MOST_COMMAND_BYTES = 1000, 64 * 1024
_FRAME_BYTES = 64 * 1024
_DEFAULT_COLUMNS, _DEFAULT_ROWS = 80, 24


class Refused(Exception):
    """A call that is refused, with a stable code and a message."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code


class Handlers:
    """The calls of one replica."""

    def __init__(self, guests: Guests, sessions: Sessions | None = None, *, user_code: bool = True) -> None:
        """``user_code``: whether the replica runs code of a user. A process of the platform has no terminal."""
        self._guests, self._user_code = guests, user_code
        self._sessions = sessions or Sessions(guests)
        self._commands = threading.BoundedSemaphore(MOST_COMMANDS)

    def table(self) -> Mapping[str, Handler]:
        """Return the handlers by the names of their calls."""
        return {"terminal": _answering(self.terminal), "exec": _answering(self.execute)}

    def calls(self) -> Mapping[str, Callable[[Call], None]]:
        """Return the calls of the control channel."""
        return {name: _of_channel(handler) for name, handler in self.table().items()}

    # --- Terminals ---------------------------------------------------------------------------------------------------
    def terminal(self, connection: Connection, request: Request) -> None:
        """Show a terminal until it or the connection has ended. Raises Refused."""
        session = self._session(request)
        viewer = session.attach(_integer(request, "after", -1))
        sender = threading.Thread(target=_show, args=(session, viewer, connection), daemon=True)
        try:
            connection.send({"t": "session", "session": session.name, "from": viewer.cursor})
            sender.start()
            while (frame := connection.receive()) is not None:
                _enter(session, frame, connection)
        except OSError:
            pass  # the connection is gone; the shell stays
        finally:
            viewer.leave()

    def _check_user_code(self) -> None:
        if not self._user_code:
            raise Refused("no_user_code", messages.NO_USER_CODE())

    def _session(self, request: Request) -> Session:
        self._check_user_code()
        size = _size(request)
        if name := request.get("session"):
            found = self._sessions.find(name) if isinstance(name, str) else None
            if found is None:
                raise Refused("terminal_ended", messages.TERMINAL_ENDED())
            found.resize(size)
            return found
        try:
            return self._sessions.create(size)
        except TooManySessions:
            raise Refused("too_many_terminals", messages.TOO_MANY_TERMINALS(most=MOST_SESSIONS)) from None
        except NotLaunched as error:
            raise Refused("not_started", messages.COMMAND_NOT_STARTED(why=str(error))) from None

    # --- Commands ----------------------------------------------------------------------------------------------------
    def execute(self, connection: Connection, request: Request) -> None:
        """Run a command until it has ended. It is killed when the connection ends. Raises Refused."""
        self._check_user_code()
        arguments = _arguments(request)
        if not self._commands.acquire(blocking=False):
            raise Refused("too_many_commands", messages.TOO_MANY_COMMANDS(most=MOST_COMMANDS))
        try:
            command = Command(self._guests, arguments, connection)
            try:
                command.start()
            except NotLaunched as error:
                raise Refused("not_started", messages.COMMAND_NOT_STARTED(why=str(error))) from None
            connection_reader = threading.Thread(target=_feed, args=(command, connection), daemon=True)
            with contextlib.suppress(OSError):
                connection.send({"t": "started"})
            command.relay()
            connection_reader.start()
            code = command.finish()
            with contextlib.suppress(OSError):
                connection.send({"t": "exit", "code": code})
        finally:
            self._commands.release()


def _of_channel(handler: Handler) -> Callable[[Call], None]:
    def handle(call: Call) -> None:
        handler(ControlFrames(call.connection), call.request)

    return handle


def _answering(call: Handler) -> Handler:
    """Return the handler, with a refusal sent as a frame."""

    def handle(connection: Connection, request: Request) -> None:
        try:
            call(connection, request)
        except Refused as error:
            with contextlib.suppress(OSError):
                connection.send({"t": "error", "code": error.code, "detail": str(error)})

    return handle


def _show(session: Session, viewer: Viewer, connection: Connection) -> None:
    """Send the session's output to the viewer's connection."""
    try:
        while (output := viewer.next(_FRAME_BYTES)) is not None:
            if output.missing:
                connection.send({"t": "gap", "bytes": output.missing})
            connection.send(output.data)
        if session.exit_code is not None:
            connection.send({"t": "exit", "code": session.exit_code})
    except OSError:
        pass
    finally:
        viewer.leave()


def _enter(session: Session, frame: Frame, connection: Connection) -> None:
    """Carry out one frame. Raises ConnectionError if the connection ends."""
    if isinstance(frame, bytes):
        session.write(frame, connection)
    elif frame.get("op") == "resize":
        session.resize(_size(frame))
    elif frame.get("op") == "end":
        session.stop()


def _feed(command: Command, connection: Connection) -> None:
    """Pass input on to the command, and kill it when the connection ends."""
    try:
        while (frame := connection.receive()) is not None:
            if isinstance(frame, bytes):
                command.write(frame)
            elif frame.get("op") == "end_input":
                command.end_input()
    except OSError:
        pass
    with contextlib.suppress(OSError):  # the command may have ended
        command.leave()


def _size(request: Request) -> Size:
    return Size(_integer(request, "columns", _DEFAULT_COLUMNS), _integer(request, "rows", _DEFAULT_ROWS))


def _integer(request: Request, name: str, default: int) -> int:
    value = request.get(name, default)
    return value if type(value) is int else default


def _arguments(request: Request) -> list[str]:
    """Return the command of a request. Raises Refused."""
    command = request.get("command")
    if (
        not isinstance(command, list)
        or not 0 < len(command) <= MOST_ARGUMENTS
        or not all(isinstance(argument, str) and "\0" not in argument for argument in command)
        or not command[0]
        or sum(map(len, command)) > MOST_COMMAND_BYTES
    ):
        raise Refused("invalid_command", messages.COMMAND_INVALID(arguments=MOST_ARGUMENTS, bytes=MOST_COMMAND_BYTES))
    return command
