"""Command that makes a port of a running replica available on this computer: ``port-forward``."""

from __future__ import annotations

import contextlib
import socket
import threading

import click

from regatta.errors import PortalError
from regatta.exec_socket import INPUT_BYTES, PortSocket
from regatta.session import Session, take
from regatta.terminal.output import print_message

_PORTS = range(1, 2**16)


class Forwarder:
    """Accepts connections on this computer, and passes each on to the port of a replica."""

    def __init__(self, server: str, token: str, job: str, replica: str, port: int) -> None:
        self._server, self._token = server, token
        self._query: dict[str, str | int] = {"job": job, "replica": replica, "port": port}

    def serve(self, listening: socket.socket) -> None:
        """Accept connections until the socket is closed."""
        while True:
            try:
                link, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=self._forward, args=(link,), daemon=True).start()

    def _forward(self, link: socket.socket) -> None:
        """Pass on one connection in both directions, until it has ended. A refusal is printed."""
        with link:
            try:
                opened = PortSocket(self._server, self._token, **self._query)
                threading.Thread(target=_feed, args=(link, opened), daemon=True).start()
                try:
                    _show(link, opened)
                finally:
                    opened.close()
            except PortalError as error:
                print_message(f"A connection has ended: {error}")
            except OSError:
                pass  # the program on this computer has closed its end
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)


def _show(link: socket.socket, opened: PortSocket) -> None:
    """Pass on what the replica sends. Raises OSError and PortalError."""
    for frame in opened.frames():
        if isinstance(frame, bytes):
            link.sendall(frame)
        elif frame["t"] == "end":
            link.shutdown(socket.SHUT_WR)


def _feed(link: socket.socket, opened: PortSocket) -> None:
    """Pass on what the program on this computer sends."""
    try:
        while data := link.recv(INPUT_BYTES):
            opened.enter(data)
        opened.tell(op="end")
    except OSError:
        opened.close()


def ports_of(text: str) -> tuple[int, int]:
    """Return the port on this computer (0: any free one) and that of the replica. Raises click.UsageError."""
    local, separator, remote = text.rpartition(":")
    numbers = [int(each) if each.isascii() and each.isdigit() else -1 for each in (local or "0", remote)]
    if numbers[1] not in _PORTS or numbers[0] not in (0, *_PORTS):
        raise click.UsageError(f"{text!r} is no port. Write PORT, or LOCAL:PORT.")
    return (numbers[0] if separator else numbers[1]), numbers[1]


@click.command("port-forward")
@click.argument("job_id")
@click.argument("replica_and_port", nargs=-1, required=True, metavar="[REPLICA] [LOCAL:]PORT")
@take
def port_forward(session: Session, job_id: str, replica_and_port: tuple[str, ...]) -> None:
    """Make a port of a running replica available on this computer, until Ctrl-C.

    The replica is by default the first trainer. The port is the same on this computer; LOCAL: names another one, and
    :PORT takes any free one.
    """
    if len(replica_and_port) > 2:
        raise click.UsageError("Write at most a replica and a port.")
    *named, ports = replica_and_port
    local, remote = ports_of(ports)
    with session.portal() as portal:
        job = portal.jobs.get(job_id)
    context = session.context()
    forwarder = Forwarder(context.server, context.token, job.id, named[0] if named else "", remote)
    try:
        listening = socket.create_server(("127.0.0.1", local))
    except OSError as error:
        raise click.UsageError(f"Port {local} of this computer cannot be used: {error.strerror}.") from None
    with listening:
        print_message(f"127.0.0.1:{listening.getsockname()[1]} leads to port {remote} of {job.name}. Ctrl-C ends it.")
        forwarder.serve(listening)


COMMANDS = (port_forward,)
