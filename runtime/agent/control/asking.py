"""Asks one Python process of the replica (``runtime.inspection.inside``). Its answers are hostile input."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from runtime.agent.control import processes
from runtime.agent.control.processes import Process
from runtime.inspection import inside

_LONGEST_ANSWER = 4 * 2**20
# Bytes of all answers that are being read. The replica has many processes, and the agent little memory.
_MOST_AT_ONCE = 32 * 2**20
_LONGEST_DUMP = 512 * 1024
_PIECE = 64 * 1024
_POLL_SECONDS, _SETTLED_SECONDS = 0.005, 0.03


_Read = TypeVar("_Read")


class NoAnswer(Exception):
    """The process does not answer in time, or its answer is of no use."""


class NotInspectable(Exception):
    """The process has no socket: it is not Python, or its Python was started without the path of the platform."""


class _Memory:
    """Bytes that the answers together may take."""

    def __init__(self, most: int) -> None:
        self._left = most
        self._changing = threading.Lock()

    def take(self, count: int) -> None:
        """Raises NoAnswer if there are not so many left."""
        with self._changing:
            if count > self._left:
                raise NoAnswer
            self._left -= count

    def give_back(self, count: int) -> None:
        with self._changing:
            self._left += count


_memory = _Memory(_MOST_AT_ONCE)
# The objects of a hostile answer take up to thirty times its bytes: one is parsed at a time.
_parsing = threading.Lock()


def ask(
    temporary: Path,
    process: Process,
    request: dict[str, Any],
    seconds: float,
    read: Callable[[dict[str, Any]], _Read],
) -> _Read:
    """Send the request, and return what ``read`` takes from the answer, a JSON object. Its result must be bounded.

    Raises NoAnswer and NotInspectable.
    """
    deadline = time.monotonic() + seconds
    try:
        link = _connected(temporary, process)
    except OSError as error:
        raise NotInspectable from error
    answer = bytearray()
    try:
        with link:
            link.settimeout(seconds)
            link.sendall(json.dumps(request).encode())
            while True:
                link.settimeout(max(0.001, deadline - time.monotonic()))
                piece = link.recv(_PIECE)
                if not piece:
                    break
                _memory.take(len(piece))
                answer += piece
                if len(answer) > _LONGEST_ANSWER or time.monotonic() > deadline:
                    raise NoAnswer
        with _parsing:
            document = json.loads(answer)
            if not isinstance(document, dict):
                raise NoAnswer
            return read(document)
    except (OSError, ValueError, RecursionError) as error:
        raise NoAnswer from error
    finally:
        _memory.give_back(len(answer))


def _connected(temporary: Path, process: Process) -> socket.socket:
    """Connect to the socket of the process. It is in a directory of user code, so no link is followed."""
    directory = os.open(temporary, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        place = os.open(
            f"{inside.SOCKET_PREFIX}{process.inner}", os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory
        )
    finally:
        os.close(directory)
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if not stat.S_ISSOCK(os.fstat(place).st_mode):
            raise OSError("not a socket")
        link.setblocking(False)
        link.connect(f"/proc/self/fd/{place}")
    except BaseException:
        link.close()
        raise
    finally:
        os.close(place)
    return link


def dump(process: Process, seconds: float) -> str:
    """Make the process write its stacks by the signal, and return the text.

    Raises NotInspectable if the process has no handler, or NoAnswer if nothing is written in time.
    """
    deadline = time.monotonic() + seconds
    descriptor = _memory_file(process)
    try:
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
        processes.send_signal(process)
        _wait_until_written(descriptor, deadline)
        return os.pread(descriptor, _LONGEST_DUMP, 0).decode("utf-8", "replace")
    except OSError as error:
        raise NoAnswer from error
    finally:
        os.close(descriptor)


def _memory_file(process: Process) -> int:
    """Open the process's memory file. Raises NotInspectable.

    The process may put another file in its place at any moment, such as one that it may only read and that this
    process could write. What was found is checked after it is held, before it is opened for writing.
    """
    file = processes.memory_file(process)
    if file is None:
        raise NotInspectable
    try:
        held = os.open(file, os.O_PATH | os.O_CLOEXEC)
        try:
            if not processes.is_memory_file(Path(f"/proc/self/fd/{held}"), file.name):
                raise NotInspectable
            return os.open(f"/proc/self/fd/{held}", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        finally:
            os.close(held)
    except OSError as error:
        raise NotInspectable from error


def _wait_until_written(descriptor: int, deadline: float) -> None:
    """Wait until the file has grown and then stays as it is for a moment. Raises NoAnswer."""
    size, settled = 0, 0.0
    while time.monotonic() < deadline:
        now = os.fstat(descriptor).st_size
        if now and now == size:
            settled += _POLL_SECONDS
            if settled >= _SETTLED_SECONDS:
                return
        else:
            size, settled = now, 0.0
        time.sleep(_POLL_SECONDS)
    if not size:
        raise NoAnswer
