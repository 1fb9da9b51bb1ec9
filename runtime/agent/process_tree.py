"""Processes that a process has started: counted, measured, and ended reliably.

The agent is the subreaper of its tree: a process that loses its parent, such as a double-forked daemon, becomes the
agent's child and stays visible. Within a PID namespace the first process is the subreaper, and all others end with it.

A failed measurement is an error and never zero: a limit that is not enforced is no limit.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from runtime.errors import TEMPORARY

_PAGE = os.sysconf("SC_PAGE_SIZE")
_LONGEST = 64 * 1024
_POLL_SECONDS, _POLL_TIMEOUT_SECONDS = 0.05, 5.0
# Opened at the start: it stays readable whatever limits this process gets later.
_PROC = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
# Errors of /proc for a process that has ended.
_ENDED = (errno.ENOENT, errno.ESRCH)


class Unmeasurable(Exception):
    """A job's usage could not be measured. The message names what and why; ``passing``: it may be possible soon."""

    def __init__(self, why: str, *, passing: bool = False) -> None:
        super().__init__(why)
        self.passing = passing


@dataclass(frozen=True)
class Memory:
    """Bytes that processes have mapped: private and shared memory."""

    own: int = 0
    shared: int = 0

    def __add__(self, other: Memory) -> Memory:
        return Memory(self.own + other.own, self.shared + other.shared)


@dataclass(frozen=True)
class Census:
    """Number of processes and threads together, and the memory that they have mapped.

    Pages that processes share are counted for each; ``shared_out`` is exact and costs more.
    """

    tasks: int
    memory: Memory


@dataclass(frozen=True)
class Held:
    """Usage that only open descriptors hold and no directory shows: bytes of memory, and of removed files."""

    memory: int
    disk: int


def descendants(*roots: int) -> Iterator[int]:
    """Yield the processes below ``roots``, parents first. Raises Unmeasurable.

    A process that is just ending may or may not be among them.
    """
    waiting = list(roots)
    while waiting:
        found = children(waiting.pop())
        yield from found
        waiting.extend(found)


def children(pid: int) -> list[int]:
    """Return the children of a process. Raises Unmeasurable."""
    found: list[int] = []
    for thread in _listed(f"{pid}/task"):
        found.extend(map(int, _read(f"{pid}/task/{thread}/children").split()))
    return found


def census(*roots: int, enough: int = 0) -> Census:
    """Count the processes below ``roots``. Stops once there are more tasks than ``enough`` (0: no bound).

    Raises Unmeasurable.
    """
    tasks, memory = 0, Memory()
    for pid in descendants(*roots):
        _, status = _living(pid)
        tasks += status.get(b"Threads", 0)
        memory += _resident(status)
        if enough and tasks > enough:
            break
    return Census(tasks, memory)


def shared_out(*roots: int) -> Memory:
    """Return the memory mapped below ``roots``, with every shared page divided among the processes that share it.

    Raises Unmeasurable.
    """
    return sum((_proportional(pid) for pid in descendants(*roots)), Memory())


def held(*roots: int, counted: int = -1) -> Held:
    """Return what descriptors below ``roots`` hold, except for files of the device ``counted``. Raises Unmeasurable."""
    memory_device = _memory_device()
    memory: dict[int, int] = {}
    removed: dict[tuple[int, int], int] = {}
    for pid in descendants(*roots):
        for found in _opened(pid):
            if found.st_dev == memory_device:
                memory[found.st_ino] = found.st_blocks * 512
            elif found.st_nlink == 0 and found.st_dev != counted:
                removed[found.st_dev, found.st_ino] = found.st_blocks * 512
    return Held(sum(memory.values()), sum(removed.values()))


def start_ticks(pid: int) -> int:
    """Return when the kernel started the process, in ticks since boot. Raises ProcessLookupError."""
    stat = _read(f"{pid}/stat")
    if not stat:
        raise ProcessLookupError(pid)
    # The second field, the name, may contain anything.
    return int(stat.rpartition(b")")[2].split()[19])


def reap() -> dict[int, int]:
    """Collect the children of this process that have ended. Return wait statuses by pid."""
    ended = {}
    with contextlib.suppress(ChildProcessError):
        while (answer := os.waitpid(-1, os.WNOHANG))[0]:
            ended[answer[0]] = answer[1]
    return ended


def kill_all(group: int) -> dict[int, int]:
    """Kill the process group and everything below this process until nothing is left. Return wait statuses by pid.

    The kernel lets no member of a group fork while a signal to the group is delivered, so a fork bomb ends with the
    first call. Processes that left the group are killed until none is found.
    """
    ended = {}
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
    while pids := _mine():
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            # At least one direct child is ending: wait for it instead of polling.
            pid, status = os.waitpid(-1, 0)
            ended[pid] = status
        ended.update(reap())
    return ended


def _mine() -> list[int]:
    """Return everything below this process. Raises Unmeasurable.

    While the processes cannot be listed, it is unknown whether any is left. In the end the agent fails, and the portal
    kills what is left.
    """
    deadline = time.monotonic() + _POLL_TIMEOUT_SECONDS
    while True:
        try:
            return list(descendants(os.getpid()))
        except Unmeasurable:
            if time.monotonic() > deadline:
                raise
            time.sleep(_POLL_SECONDS)


def _opened(pid: int) -> list[os.stat_result]:
    """Return the files that a process has open; none for a process that has ended. Raises Unmeasurable."""
    while directory := _living(pid)[0]:
        found = []
        try:
            for number in _listed(f"{directory}/fd"):
                with _ended_is_nothing(f"{directory}/fd"):
                    found.append(os.stat(f"{directory}/fd/{number}", dir_fd=_PROC))
        except Unmeasurable:
            if _living(pid)[0] == directory:
                raise
        else:
            return found
    return []


def _proportional(pid: int) -> Memory:
    directory, status = _living(pid)
    try:
        lines = (line.partition(b":") for line in _read(f"{directory}/smaps_rollup").splitlines()[1:])
    except Unmeasurable:
        # The process blocks inspection. Counted with everything that it shares, its usage is not underestimated.
        return _resident(status)
    sizes = {name: 1024 * int(rest.split()[0]) for name, _, rest in lines}
    return Memory(sizes.get(b"Pss_Anon", 0), sizes.get(b"Pss_Shmem", 0))


def _resident(status: Mapping[bytes, int]) -> Memory:
    return Memory(1024 * status.get(b"RssAnon", 0), 1024 * status.get(b"RssShmem", 0))


def _living(pid: int) -> tuple[str, dict[bytes, int]]:
    """Return the directory below /proc that shows a process's memory and files, and the numbers of its status.

    The directory is a thread's if the first thread has ended, and empty for a process that has ended. Raises
    Unmeasurable.

    The kernel shows root as the owner of a process without memory: an ordinary user may not list the descriptors of a
    process that has ended but was not waited for.
    """
    status = _status(str(pid))
    if b"RssAnon" in status or b"Threads" not in status:
        return (str(pid) if status else ""), status
    for thread in _listed(f"{pid}/task"):
        directory = f"{pid}/task/{thread}"
        if b"RssAnon" in (own := _status(directory)):
            return directory, own
    return "", status


def _status(directory: str) -> dict[bytes, int]:
    """Return the numbers of a status file below /proc; empty if the process or thread has ended."""
    lines = (line.partition(b":") for line in _read(f"{directory}/status").splitlines())
    return {name: int(rest.split()[0]) for name, _, rest in lines if name in (b"Threads", b"RssAnon", b"RssShmem")}


def _memory_device() -> int:
    """Return the device of memory files that only descriptors name. The whole machine has one such device."""
    descriptor = os.memfd_create("device", os.MFD_CLOEXEC)
    try:
        return os.fstat(descriptor).st_dev
    finally:
        os.close(descriptor)


def _listed(path: str) -> Iterable[str]:
    with _ended_is_nothing(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=_PROC)
        try:
            return os.listdir(descriptor)  # noqa: PTH208  by descriptor
        finally:
            os.close(descriptor)
    return ()


def _read(path: str) -> bytes:
    """Return the content of a file of /proc; empty if the process has ended."""
    with _ended_is_nothing(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=_PROC)
        try:
            return b"".join(iter(lambda: os.read(descriptor, _LONGEST), b""))
        finally:
            os.close(descriptor)
    return b""


@contextlib.contextmanager
def _ended_is_nothing(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in _ENDED:
            raise Unmeasurable(f"/proc/{path}: {error.strerror}", passing=error.errno in TEMPORARY) from None
