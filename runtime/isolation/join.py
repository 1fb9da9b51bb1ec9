"""Start of the joiner, and the wait until its command runs. Safe while other threads run."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runtime.isolation import launcher
from runtime.isolation.launch import ROOT, NotLaunched, refusal, written

if TYPE_CHECKING:
    from runtime.isolation.launch_request import JoinOrder

_PROGRAM = """import sys; sys.path.insert(0, sys.argv[1])
from runtime.isolation.joiner import start; start(int(sys.argv[2]))"""
_SECONDS = 60.0
_LONGEST_REPORT = 4096


@dataclass(frozen=True)
class Guest:
    """The command to start in a replica, with the identity and limits of its own command (``launch.Command``).

    ``namespaces``: as in ``launch.Launched``, empty for a replica without. ``ruleset``: Landlock rules for a replica
    without namespaces, -1 for none; ``confined``: whether it has a system call filter. ``terminal``: the streams are
    a terminal that controls the command.
    """

    arguments: Sequence[str]
    environment: Mapping[str, str]
    directory: str
    uid: int
    writable: Sequence[str]
    limits: Sequence[tuple[int, int, int]]
    gpus: Sequence[str] = ()
    cgroup: int = -1
    network: tuple[int, int] = (-1, -1)
    namespaces: Sequence[int] = ()
    ruleset: int = -1
    confined: bool = False
    terminal: bool = False


@dataclass(frozen=True)
class Joined:
    """The joiner's process and its descriptor, and the pipe with the command's end."""

    pid: int
    pidfd: int
    status: int

    def terminate(self) -> None:
        """Kill the command and its process group. From any thread, until ``exit_code`` has returned."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGTERM)

    def exit_code(self) -> int:
        """Wait for the end of the command. Return its exit code as a shell states it: 128 plus the number of a signal.

        Without an answer the joiner was killed with the replica.
        """
        status = os.read(self.status, 4)
        code = os.waitstatus_to_exitcode(int.from_bytes(status, "little")) if status else -signal.SIGKILL
        return code if code >= 0 else 128 - code

    def close(self) -> None:
        """Close the descriptors."""
        os.close(self.pidfd)
        os.close(self.status)


def join(guest: Guest, streams: tuple[int, int, int]) -> Joined:
    """Start the command with these standard streams. It is killed when the calling thread ends. Raises NotLaunched.

    The caller's process collects the ended joiner, which is its child.
    """
    ours, theirs = socket.socketpair()
    reading, writing = os.pipe2(os.O_CLOEXEC)
    try:
        with ours, theirs, written(_order(guest, theirs.fileno(), writing)) as order:
            given = (guest.cgroup, guest.ruleset, *guest.network, *guest.namespaces)
            try:
                process = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-B", "-c", _PROGRAM, ROOT, str(order)],
                    stdin=streams[0],
                    stdout=streams[1],
                    stderr=streams[2],
                    cwd="/",
                    env={},
                    pass_fds=(*(number for number in given if number >= 0), theirs.fileno(), writing, order),
                    process_group=0,
                )
            except OSError as error:
                raise NotLaunched(str(error), error.errno) from None
            pidfd = os.pidfd_open(process.pid)
            theirs.close()
            os.close(writing)
            writing = -1
            try:
                _await_start(ours)
            except NotLaunched:
                process.returncode = 0
                os.close(pidfd)
                raise
    except NotLaunched:
        os.close(reading)
        raise
    finally:
        if writing >= 0:
            os.close(writing)
    # The agent collects its ended children in one place; this object must not wait for it as well.
    process.returncode = 0
    return Joined(process.pid, pidfd, reading)


def _order(guest: Guest, report: int, status: int) -> JoinOrder:
    return {
        "parent": os.getpid(),
        "command": list(guest.arguments),
        "environment": dict(guest.environment),
        "directory": guest.directory,
        "uid": guest.uid,
        "writable": list(guest.writable),
        "gpus": list(guest.gpus),
        "limits": list(guest.limits),
        "report": report,
        "status": status,
        "cgroup": guest.cgroup,
        "network": guest.network,
        "namespaces": list(guest.namespaces),
        "ruleset": guest.ruleset,
        "confined": guest.confined,
        "terminal": guest.terminal,
    }


def _await_start(ours: socket.socket) -> None:
    """Read the joiner's report. Raises NotLaunched."""
    ours.settimeout(_SECONDS)
    report = b""
    try:
        while len(report) < _LONGEST_REPORT and (piece := ours.recv(_LONGEST_REPORT)):
            report += piece
    except TimeoutError:
        raise NotLaunched(f"the replica was not joined within {_SECONDS:g} s") from None
    except ConnectionError:
        pass
    if report != launcher.STARTED:
        raise refusal(report.removeprefix(launcher.STARTED))
