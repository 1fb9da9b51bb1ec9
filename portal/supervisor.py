"""Supervisor of the portal's processes: starts them, restarts them, prints their output, stops them in order. One
thread; woken by events only.

Order of the stop: the processes that start work (sweep, worker) first, then the trainings are interrupted. The web
process is last, because agents send their last lines to it. The whole takes less than ``STOP_SECONDS``.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import IO

from portal.common.messages import requests as messages
from portal.restart_policy import Child, began, due, ended, line_of_end
from runtime.messages import paragraph

# The phases of an orderly stop, in seconds; together they stay below ten.
GRACE_SECONDS = 2.5
INTERRUPT_SECONDS = 4.5
STOP_SECONDS = 2 * GRACE_SECONDS + INTERRUPT_SECONDS

_PROBE_SECONDS = 0.05
# One Ctrl-C may arrive twice: from the terminal, and passed on by `make`.
_SAME_SIGNAL_SECONDS = 0.5
_NO_MORE_PATIENCE = b"Not waiting any longer. Trainings that still run go on; the next start looks after them.\n"
_LONGEST_LINE = 64 * 1024
_PR_SET_PDEATHSIG = 1
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Command:
    """How to start a child. ``inherit`` are the descriptors that it inherits."""

    argv: Sequence[str]
    inherit: tuple[int, ...] = ()


@dataclass
class _Process:
    popen: subprocess.Popen[bytes]
    output: IO[bytes]
    unfinished: bytearray = field(default_factory=bytearray)


class Supervisor:
    """Runs ``commands`` (by name, started in that order) until a stop signal arrives.

    ``is_ready`` is polled until it first returns true, then ``on_ready`` is called once. At the end the children are
    stopped group by group as in ``stop_order``; ``interrupt`` is called before the last group, for at most
    ``INTERRUPT_SECONDS``.
    """

    def __init__(
        self,
        commands: Mapping[str, Command],
        *,
        stop_order: Sequence[Sequence[str]],
        is_ready: Callable[[], bool],
        on_ready: Callable[[], None],
        interrupt: Callable[[], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._commands = commands
        self._stop_order = stop_order
        self._is_ready = is_ready
        self._on_ready = on_ready
        self._interrupt = interrupt
        self._clock = clock
        self._children = {name: Child(name) for name in commands}
        self._processes: dict[str, _Process] = {}
        self._selector = selectors.DefaultSelector()
        self._ready = False
        self._stop_requested: float | None = None

    def run(self) -> None:
        """Run the children; return when all have been stopped."""
        receive, send = socket.socketpair()
        send.setblocking(False)
        self._selector.register(receive, selectors.EVENT_READ)
        signal.set_wakeup_fd(send.fileno(), warn_on_full_buffer=False)
        for number in _STOP_SIGNALS:
            signal.signal(number, self._on_stop_signal)
        # Needed only so that an end of a child wakes the selector.
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        try:
            self._keep_alive()
            self._stop_all()
        finally:
            self._kill_all()

    def _on_stop_signal(self, number: int, frame: FrameType | None) -> None:
        if self._stop_requested is None:
            self._stop_requested = self._clock()
        elif self._clock() - self._stop_requested >= _SAME_SIGNAL_SECONDS:  # a second signal ends the wait
            self._kill_all()
            with contextlib.suppress(OSError):  # past the buffer, which may be in use
                os.write(sys.stdout.fileno(), _NO_MORE_PATIENCE)
            os._exit(128 + number)

    def _keep_alive(self) -> None:
        while self._stop_requested is None:
            self._note_ends()
            self._start_due()
            self._probe()
            self._wait(self._pause())

    def _pause(self) -> float | None:
        """Return the seconds to wait without an event; None: without limit."""
        retries = [child.retry_at - self._clock() for child in self._children.values() if child.retry_at is not None]
        probe = [] if self._ready else [_PROBE_SECONDS]
        return max(0.0, min([*retries, *probe])) if retries or probe else None

    def _start_due(self) -> None:
        for name, child in self._children.items():
            if due(child, self._clock()):
                self._children[name] = began(child, self._clock())
                try:
                    self._start(name)
                except OSError as error:
                    # No process or descriptor is available now; that does not end the other children.
                    self._children[name] = ended(self._children[name], self._clock())
                    write_line(
                        paragraph(
                            messages.REPLICA_NOT_STARTED(replica=name, why=f"{error.strerror}."),
                            messages.LAUNCH_RETRIED(),
                        )
                    )

    def _start(self, name: str) -> None:
        command = self._commands[name]
        popen = subprocess.Popen(
            command.argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=command.inherit,
            # A session of its own: Ctrl-C at the terminal reaches only this process, which stops the others in order.
            start_new_session=True,
            preexec_fn=_kill_with_parent(os.getpid()),  # noqa: PLW1509  one thread here
        )
        assert popen.stdout is not None  # noqa: S101  requested above
        os.set_blocking(popen.stdout.fileno(), False)
        self._processes[name] = _Process(popen, popen.stdout)
        self._selector.register(popen.stdout, selectors.EVENT_READ, name)

    def _note_ends(self) -> None:
        for name, process in list(self._processes.items()):
            code = process.popen.poll()
            if code is not None:
                self._forget(name)
                self._children[name] = ended(self._children[name], self._clock())
                write_line(line_of_end(self._children[name], code, self._clock()))
        self._collect_orphans()

    def _collect_orphans(self) -> None:
        """Collect ended processes whose parents are gone. In a container the first process inherits the agents of
        jobs."""
        mine = {process.popen.pid for process in self._processes.values()}
        with contextlib.suppress(ChildProcessError):
            # Only inspected first: ``poll`` must see the exit status of the supervisor's own children.
            while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if ended.si_pid in mine:
                    return
                os.waitpid(ended.si_pid, 0)

    def _forget(self, name: str) -> None:
        """After the end of a process: print the rest of its output, and kill the processes left in its session."""
        process = self._processes.pop(name)
        self._read(name, process)
        if process.unfinished:
            _show(name, [bytes(process.unfinished)])
        self._selector.unregister(process.output)
        process.output.close()
        _kill_group(process.popen.pid)

    def _probe(self) -> None:
        if not self._ready and self._is_ready():
            self._ready = True
            self._on_ready()

    def _wait(self, timeout: float | None) -> None:
        """Wait for a signal, a line of a child, or the timeout."""
        for key, _ in self._selector.select(timeout):
            if key.data in self._processes:
                self._read(key.data, self._processes[key.data])
            elif isinstance(key.fileobj, socket.socket):
                key.fileobj.recv(4096)

    def _read(self, name: str, process: _Process) -> None:
        chunk = process.output.read(_LONGEST_LINE)
        if not chunk:
            return
        process.unfinished += chunk
        *lines, rest = bytes(process.unfinished).split(b"\n")
        if len(rest) > _LONGEST_LINE:
            lines, rest = [*lines, rest], b""
        process.unfinished = bytearray(rest)
        _show(name, lines)

    # --- Stopping ----------------------------------------------------------------------------------------------------
    def _stop_all(self) -> None:
        write_line("Stopping ...")
        *first, last = self._stop_order
        for names in first:
            self._stop(names)
        self._interrupt_trainings()
        self._stop(last)
        write_line("Stopped.")

    def _stop(self, names: Sequence[str]) -> None:
        """Send SIGTERM to a group; kill the processes that have not ended after the grace."""
        for name in names:
            if name in self._processes:
                self._processes[name].popen.terminate()
        self._wait_until(lambda: self._ended(names), GRACE_SECONDS)
        for name in names:
            if name in self._processes:
                write_line(f"{name} did not end in {GRACE_SECONDS:g} s and is killed.")
                _kill_group(self._processes[name].popen.pid)
                self._processes[name].popen.wait()
                self._forget(name)

    def _ended(self, names: Sequence[str]) -> bool:
        for name in names:
            if name in self._processes and self._processes[name].popen.poll() is not None:
                self._forget(name)
        return not any(name in self._processes for name in names)

    def _interrupt_trainings(self) -> None:
        """Interrupt in a thread, so that lines of the web process are still printed and an endless wait cannot block
        the stop."""
        thread = threading.Thread(target=self._guarded_interrupt, daemon=True)
        thread.start()
        self._wait_until(lambda: not thread.is_alive(), INTERRUPT_SECONDS)
        if thread.is_alive():
            write_line("Some trainings have not ended yet; the next start will look after them.")

    def _guarded_interrupt(self) -> None:
        try:
            self._interrupt()
        except Exception as error:  # noqa: BLE001  whatever it is, the rest must still be stopped
            write_line(f"Interrupting the trainings failed ({error!r}); the next start will look after them.")

    def _wait_until(self, condition: Callable[[], bool], seconds: float) -> None:
        deadline = self._clock() + seconds
        while not condition() and (left := deadline - self._clock()) > 0:
            self._wait(min(left, _PROBE_SECONDS))

    def _kill_all(self) -> None:
        for process in self._processes.values():
            _kill_group(process.popen.pid)


def _kill_with_parent(parent: int) -> Callable[[], None] | None:
    """Return a hook for the child, before its program starts: the kernel kills it when this process ends, however that
    happens (Linux only)."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def prepare() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent ended before that call
            os._exit(1)

    return prepare


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # no process of the group is left
        os.killpg(pid, signal.SIGKILL)


def _show(name: str, lines: Iterable[bytes]) -> None:
    for line in lines:
        write_line(f"{name:>6} | {line.decode('utf-8', 'replace')}")


def write_line(line: str) -> None:
    """Print one line to the terminal. A closed terminal is no reason to stop."""
    with contextlib.suppress(BrokenPipeError, ValueError):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
