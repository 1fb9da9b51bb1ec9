"""Start of the launcher, without the caller's environment, and the wait until the command runs."""

from __future__ import annotations

import contextlib
import marshal
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runtime.isolation import launcher
from runtime.isolation.launch_request import NAMESPACES
from runtime.isolation.view import View

if TYPE_CHECKING:
    from runtime.isolation.launch_request import Order

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# A program text and not the launcher's file, which would be compiled at every start.
_PROGRAM = """import sys; sys.path.insert(0, sys.argv[1])
from runtime.isolation.launcher import start; start(int(sys.argv[2]))"""
# Timeout for the launcher, which needs milliseconds.
_SECONDS = 60.0
_LONGEST_REPORT = 4096
# A shared-memory file system without a limit takes at most 1/2 of the machine's memory, which is the kernel's default.
_SHARE_OF_MEMORY = 2


class NotLaunched(Exception):
    """The command was not started. The message gives the reason; ``number`` is the errno of a failed system call."""

    def __init__(self, why: str, number: int | None = None) -> None:
        super().__init__(why)
        self.number = number


@dataclass(frozen=True)
class Launched:
    """The launcher, which leads its own process group, and the directory of the command's own shared memory.

    ``namespaces``: descriptors of the command's namespaces, in the order of ``launch_request.NAMESPACES``.
    """

    process: subprocess.Popen[bytes]
    shared_memory: int
    namespaces: tuple[int, ...]


@dataclass(frozen=True)
class Command:
    """The command to start, with its identity and its resources.

    ``uid``: the identity to take, which needs root; 0: the caller's own, in a user namespace. ``gpus``: device files of
    GPUs that it may use. ``shared_memory``: bytes, 0 for half of the machine's memory. ``cgroup``: the descriptor for
    entering its cgroup, -1 for none. ``network``: the descriptors of the user and network namespaces that it joins, -1
    for none (``network.Network.namespaces``).
    """

    arguments: Sequence[str]
    environment: Mapping[str, str]
    directory: str
    uid: int
    view: View
    writable: Sequence[str]
    limits: Sequence[tuple[int, int, int]] = ()
    inherit: Sequence[int] = ()
    gpus: Sequence[str] = ()
    shared_memory: int = 0
    cgroup: int = -1
    network: tuple[int, int] = (-1, -1)


def launch(command: Command, stdout: int, stderr: int) -> Launched:
    """Start the command. It is killed when the calling thread ends. Raises NotLaunched."""
    ours, theirs = socket.socketpair()
    with ours, theirs, written(_order(command, theirs.fileno())) as order:
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-B", "-c", _PROGRAM, ROOT, str(order)],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                cwd="/",
                env={},
                pass_fds=(*command.inherit, *_valid(command.cgroup, *command.network), theirs.fileno(), order),
                process_group=0,
            )
        except OSError as error:
            raise NotLaunched(str(error), error.errno) from None
        theirs.close()
        try:
            return Launched(process, *_await_start(ours))
        except NotLaunched:
            process.kill()
            process.wait()
            raise


def _order(command: Command, report: int) -> Order:
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "parent": os.getpid(),
        "command": list(command.arguments),
        "environment": dict(command.environment),
        "directory": command.directory,
        "uid": command.uid,
        "view": tuple(tuple(map(tuple, part)) for part in command.view),
        "shared_memory": command.shared_memory or machine // _SHARE_OF_MEMORY,
        "writable": list(command.writable),
        "gpus": list(command.gpus),
        "limits": list(command.limits),
        "report": report,
        "inherit": list(command.inherit),
        "cgroup": command.cgroup,
        "network": command.network,
    }


def _valid(*descriptors: int) -> tuple[int, ...]:
    return tuple(descriptor for descriptor in descriptors if descriptor >= 0)


@contextlib.contextmanager
def written(order: Mapping[str, Any]) -> Iterator[int]:
    """Write the order to memory and yield a descriptor for reading it."""
    descriptor = os.memfd_create("order", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            marshal.dump(dict(order), file)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


def _await_start(ours: socket.socket) -> tuple[int, tuple[int, ...]]:
    """Read the launcher's report. Return the descriptors of shared memory and namespaces. Raises NotLaunched."""
    ours.settimeout(_SECONDS)
    given, text = list[int](), b""
    with contextlib.suppress(ConnectionError):
        while len(text) < _LONGEST_REPORT:
            try:
                piece, descriptors, _flags, _peer = socket.recv_fds(ours, _LONGEST_REPORT, 1 + len(NAMESPACES))
            except TimeoutError:
                text = f"its isolation was not set up within {_SECONDS:g} s".encode()
                break
            given += descriptors
            if not piece:
                break
            text += piece
    for descriptor in given:
        os.set_inheritable(descriptor, False)
    if text == launcher.SHARED_MEMORY_OPENED + launcher.STARTED and len(given) == 1 + len(NAMESPACES):
        return given[0], tuple(given[1:])
    for descriptor in given:
        os.close(descriptor)
    reason = text.removeprefix(launcher.SHARED_MEMORY_OPENED).removeprefix(launcher.STARTED)
    raise refusal(reason)


def refusal(report: bytes) -> NotLaunched:
    """Return the error that a launcher or joiner has reported."""
    number, refused, why = report.decode("utf-8", "replace").partition(launcher.REFUSED)
    if refused:
        return NotLaunched(why, int(number))
    return NotLaunched(number or "its launcher ended without a reason")
