"""Starts the role's process: its limits, its directories, its environment."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import signal
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from runtime import contract
from runtime.agent import kernel, sandbox, shortcut
from runtime.agent.settings import Settings

# Room for the shared libraries that a process maps but does not fill.
_MAPPED_LIBRARIES = 1024**3
_LARGEST_FILE = 4 * 1024**3
_OPEN_FILES = 4096
_PIPE_BYTES = 1024 * 1024
# Between the signal that warns of used-up CPU time and the one that ends.
_CPU_MARGIN_SECONDS = 5


@dataclass(frozen=True)
class Child:
    """A started process and the reading ends of its output. It is the leader of its own process group."""

    process: subprocess.Popen[bytes]
    stdout: int
    stderr: int

    @property
    def pid(self) -> int:
        return self.process.pid


def start(settings: Settings, command: Sequence[str], link: int, ruleset: int | None) -> Child:
    """Start the command. ``link`` is the inherited socket. Raises OSError when it cannot be started.

    Must be called before any other thread runs, and from the thread that lives as long as the agent: the kernel kills
    the child when that thread ends.
    """
    out, stdout = _pipe()
    err, stderr = _pipe()
    try:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            cwd=settings.work,
            env=_environment(settings, link),
            pass_fds=(link,),
            process_group=0,
            preexec_fn=_before_exec(settings, ruleset),  # noqa: PLW1509  no other thread runs yet
        )
    finally:
        os.close(stdout)
        os.close(stderr)
    return Child(process, out, err)


def limits(settings: Settings) -> Iterable[tuple[int, int, int]]:
    """The resource limits as (resource, soft, hard)."""
    yield resource.RLIMIT_CORE, 0, 0
    yield resource.RLIMIT_FSIZE, _LARGEST_FILE, _LARGEST_FILE
    files = min(_OPEN_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    yield resource.RLIMIT_NOFILE, files, files
    if settings.memory:
        # What is written to counts in full; address space that is only mapped is cheap.
        yield resource.RLIMIT_DATA, settings.memory, settings.memory
        yield resource.RLIMIT_AS, settings.memory + _MAPPED_LIBRARIES, settings.memory + _MAPPED_LIBRARIES
    if settings.cpu_seconds:
        yield resource.RLIMIT_CPU, settings.cpu_seconds, settings.cpu_seconds + _CPU_MARGIN_SECONDS
    if settings.processes and os.getuid() != 0:
        # A backstop: the kernel counts all processes of the user, also those outside this job, and would not say why.
        most = _tasks_of_user() + 2 * settings.processes
        yield resource.RLIMIT_NPROC, most, most


def _environment(settings: Settings, link: int) -> dict[str, str]:
    return {
        **settings.child_environment,
        contract.AGENT_FD: str(link),
        contract.WORK_DIR: str(settings.work),
        contract.OUTPUT_DIR: str(settings.output),
        "HOME": str(settings.work),
        "TMPDIR": str(shortcut.make(settings.temporary)),
        # Each thread would otherwise reserve an arena of its own out of the limit.
        "MALLOC_ARENA_MAX": "2",
    }


def _before_exec(settings: Settings, ruleset: int | None) -> Callable[[], None]:
    parent = os.getpid()
    bounds = [_possible(*limit) for limit in limits(settings)]

    def prepare() -> None:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(contract.EXIT_ERROR)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        for which, soft, hard in bounds:
            resource.setrlimit(which, (soft, hard))
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        if ruleset is not None:
            sandbox.enter(ruleset)

    return prepare


def _possible(which: int, soft: int, hard: int) -> tuple[int, int, int]:
    """A limit may be lowered but not raised."""
    ceiling = resource.getrlimit(which)[1]
    if ceiling == resource.RLIM_INFINITY:
        return which, soft, hard
    return which, min(soft, ceiling), min(hard, ceiling)


def _pipe() -> tuple[int, int]:
    reading, writing = os.pipe2(os.O_CLOEXEC)
    # Where the user's share of pipe memory is used up, the usual size does.
    with contextlib.suppress(OSError):
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    os.set_blocking(reading, False)
    return reading, writing


def _tasks_of_user() -> int:
    uid, tasks = os.getuid(), 0
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with contextlib.suppress(OSError):
                if process.stat().st_uid == uid:
                    tasks += (process / "task").stat().st_nlink - 2
    return tasks
