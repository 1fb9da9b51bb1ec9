"""Last steps of a process before it becomes a command in isolation: shared by the launcher and the joiner."""

from __future__ import annotations

import _signal as signal
import os

from runtime.isolation import landlock, syscalls
from runtime.isolation.launch_request import SHARED_MEMORY, TEMPORARY

# Makes a job the first process that the kernel ends when the machine runs out of memory.
OOM_SCORE = "500"
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# User id 0 is not privileged, programs gain no capabilities, and both settings are locked.
_SECURE_BITS = 1 | 2 | 32 | 64 | 128


def reset_signals() -> None:
    """Give signals their usual effects. Python ignores the last two, but programs expect to be ended by them."""
    for number in (*STOP_SIGNALS, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def drop_privileges(uid: int) -> None:
    syscalls.drop_bounding_set()
    syscalls.prctl(syscalls.PR_SET_SECUREBITS, _SECURE_BITS)
    if uid:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    syscalls.drop_capabilities()


def ruleset(writable: list[str], gpus: list[str], scopes: int = landlock.SCOPES) -> int | None:
    """Return the Landlock rules: a second barrier besides the view, if the kernel has Landlock. Raises OSError."""
    grants = {
        "/": landlock.READ_ONLY,
        **dict.fromkeys(landlock.DEVICES, landlock.DEVICE),
        **landlock.for_gpus(gpus),
        **dict.fromkeys([*writable, TEMPORARY, SHARED_MEMORY], landlock.EVERYTHING),
    }
    try:
        return landlock.prepare(grants, scopes)
    except landlock.LandlockMissing:
        return None


def execute(command: list[str], environment: dict[str, str]) -> None:
    """Execute the command, found by its own PATH as in a shell. Raises OSError that names the program."""
    try:
        os.execvpe(command[0], command, environment)  # noqa: S606  no shell is needed
    except OSError as error:
        raise OSError(error.errno, error.strerror, command[0]) from None


def write(path: str, content: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.write(descriptor, content.encode())
    finally:
        os.close(descriptor)
