"""Commands that run programs in a running replica: ``shell`` and ``exec``."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

import click

from regatta.errors import EXIT_OK
from regatta.exec_socket import INPUT_BYTES, ConnectionLost, ExecSocket
from regatta.session import Session, take
from regatta.terminal import raw
from regatta.terminal.output import print_message

# How long a lost connection is tried again.
_TRIES, _PAUSE_SECONDS = 30, 2.0
_STDERR = 2


class Shell:
    """A shell in a replica, over as many connections as it takes."""

    def __init__(self, session: Session, job: str, replica: str, name: str) -> None:
        self._session, self._job, self._replica = session, job, replica
        self.name, self._after = name, -1
        self._socket: ExecSocket | None = None
        self.exit_code: int | None = None
        self.keyboard = raw.Keyboard(self._enter, self._resize, self._close)

    def run(self) -> None:
        """Show the shell until it has ended or is left. Raises PortalError."""
        failures = 0
        while self.exit_code is None and not self.keyboard.left:
            try:
                self._connect()
                failures = 0 if self._show() else failures
            except ConnectionLost:
                failures += 1
                if failures > _TRIES:
                    raise
                self._session.outside.sleep(_PAUSE_SECONDS)

    def _connect(self) -> None:
        context = self._session.context()
        columns, rows = raw.size()
        self._socket = ExecSocket(
            context.server,
            context.token,
            job=self._job,
            replica=self._replica,
            session=self.name,
            after=self._after,
            columns=columns,
            rows=rows,
        )

    def _show(self) -> bool:
        """Print output until the connection ends. Return whether it showed a shell."""
        assert self._socket is not None  # noqa: S101  connected before
        for frame in self._socket.frames():
            if isinstance(frame, bytes):
                self._after += len(frame)
                sys.stdout.buffer.write(frame)
                sys.stdout.buffer.flush()
            else:
                self._heed(frame)
        return bool(self.name)

    def _heed(self, message: dict[str, Any]) -> None:
        if message["t"] == "session":
            self.name, self._after = message["session"], message["from"]
        elif message["t"] == "gap":
            self._after += message["bytes"]
            print_message(f"[{message['bytes']} bytes of output are no longer kept]\r")
        elif message["t"] == "exit":
            self.exit_code = message["code"]
        elif message["t"] == "ready" and message["recorded"]:
            print_message("This session is recorded.\r")

    def _enter(self, data: bytes) -> None:
        if self._socket is not None:
            self._socket.enter(data)

    def _resize(self) -> None:
        if self._socket is not None:
            columns, rows = raw.size()
            self._socket.tell(op="resize", columns=columns, rows=rows)

    def _close(self) -> None:
        if self._socket is not None:
            self._socket.close()


@click.command()
@click.argument("job_id")
@click.argument("replica", default="")
@click.option("--session", "name", default="", help="Return to a shell that was left.")
@take
def shell(session: Session, job_id: str, replica: str, name: str) -> None:
    """Open a shell in a running replica, by default the first trainer.

    Ctrl-] leaves; the shell then runs for 15 minutes more. The exit code is that of the shell.
    """
    with session.portal() as portal:
        job = portal.jobs.get(job_id)
    opened = Shell(session, job.id, replica, name)
    with raw.raw_mode():
        opened.keyboard.start()
        opened.run()
    if opened.exit_code is None:
        again = " ".join(filter(None, ("regatta shell", job.id, replica, "--session", opened.name)))
        print_message(f"\nYou have left the shell. It runs for 15 minutes more: {again}")
    sys.exit(opened.exit_code or EXIT_OK)


@click.command("exec", context_settings={"ignore_unknown_options": True})
@click.argument("job_id")
@click.option("-r", "--replica", default="", help="The replica, such as trainer-1. Default: the first trainer.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@take
def execute(session: Session, job_id: str, replica: str, command: tuple[str, ...]) -> None:
    """Run a command in a running replica: regatta exec JOB -- nvidia-smi. The exit code is that of the command.

    It gets the standard input, and is killed when this command ends.
    """
    with session.portal() as portal:
        job = portal.jobs.get(job_id)
    context = session.context()
    socket = ExecSocket(context.server, context.token, job=job.id, replica=replica, command=1)
    try:
        sys.exit(_run(socket, command))
    finally:
        socket.close()


def _run(socket: ExecSocket, command: tuple[str, ...]) -> int:
    """Pass the streams on until the command has ended. Return its exit code. Raises PortalError."""
    for frame in socket.frames():
        if isinstance(frame, bytes):
            stream = sys.stderr if frame[0] == _STDERR else sys.stdout
            stream.buffer.write(frame[1:])
            stream.buffer.flush()
        elif frame["t"] == "ready":
            socket.tell(command=list(command))
        elif frame["t"] == "started":
            threading.Thread(target=_feed, args=(socket,), daemon=True).start()
        elif frame["t"] == "exit":
            return int(frame["code"])
    raise ConnectionLost("The portal closed the connection before the command had ended.")


def _feed(socket: ExecSocket) -> None:
    """Send the standard input."""
    while data := os.read(sys.stdin.fileno(), INPUT_BYTES):
        socket.enter(data)
    socket.tell(op="end_input")


COMMANDS = (shell, execute)
