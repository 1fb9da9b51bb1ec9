"""Stacks of replicas, and what a thread waits for by the place where it stands. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from jobs.messages import stalls as messages
from runtime.messages import Template

RUNNING: Final = "running"
MAIN_THREAD: Final = "MainThread"
READING_THREAD: Final = "reading"


class Frame(NamedTuple):
    file: str
    line: int
    function: str


@dataclass(frozen=True)
class Thread:
    """``native``: Python does not know it. ``frames``: innermost first. ``process``: number of its process."""

    name: str
    native: bool
    frames: tuple[Frame, ...]
    process: int = 0

    @property
    def user_frame(self) -> Frame | None:
        """The innermost frame of the user's code; None if there is none."""
        return next((frame for frame in self.frames if not _LIBRARY.search(frame.file)), None)


@dataclass(frozen=True)
class ReplicaStack:
    """``state``: ``running``, ``stopped``, ``unresponsive`` or ``gone``. ``full``: its disk is full."""

    replica: str
    state: str
    threads: tuple[Thread, ...]
    full: bool = False

    @property
    def main(self) -> Thread | None:
        """The thread on which the script runs.

        It has its name, except in a dump, where no thread has one: there it is the oldest thread, and the last of its
        process.
        """
        python = [thread for thread in self.threads if not thread.native]
        named = next((thread for thread in python if thread.name == MAIN_THREAD), None)
        return named or next((thread for thread in reversed(python) if thread.process == python[0].process), None)

    def named(self, name: str) -> Thread | None:
        return next((thread for thread in self.threads if thread.name == name), None)


# Files that are not the user's.
_LIBRARY: Final = re.compile(r"(^|/)runtime/|/lib/python\d|(^|/)(site|dist)-packages/|^<frozen|^<string>")


class Wait(NamedTuple):
    """``on``: the kind of what is waited for; ``doing``: the message."""

    on: str
    doing: Template


LOCK, QUEUE, PIPE, NETWORK, FILE = "lock", "queue", "pipe", "network", "file"
DECODE, MASTER, SERVERS = "decode", "master", "servers"
# Waits whose cause is in another process of the job.
OF_OTHERS: Final = frozenset({MASTER, SERVERS})

# By file and function of a frame. The first row that fits a frame, the innermost frame first, decides.
_ROWS: Sequence[tuple[str, str, Wait]] = (
    (r"runtime/trainer/tasks/read_ahead\.py$", r"__next__", Wait(DECODE, messages.WAITS_IN_DECODE)),
    (r"runtime/trainer/(servers/|params\.py|tables\.py)", r".", Wait(SERVERS, messages.WAITS_FOR_SERVERS)),
    (r"runtime/trainer/(tasks/task_|environment\.py)", r".", Wait(MASTER, messages.WAITS_FOR_MASTER)),
    (r"/(subprocess|pty)\.py$|/multiprocessing/", r".", Wait(PIPE, messages.WAITS_FOR_PIPE)),
    (r"/(socket|ssl)\.py$|/(http|urllib|urllib3|requests)/", r".", Wait(NETWORK, messages.WAITS_FOR_NETWORK)),
    (r"/queue\.py$", r".", Wait(QUEUE, messages.WAITS_FOR_QUEUE)),
    (r"/(pathlib|shutil|gzip|zipfile|tarfile|codecs|tempfile)\.py$", r".", Wait(FILE, messages.WAITS_FOR_FILE)),
    (r"/threading\.py$", r"^(wait|wait_for|acquire|join|_wait_for_tstate_lock)$", Wait(LOCK, messages.WAITS_FOR_LOCK)),
)  # fmt: skip
_TABLE = tuple((re.compile(file), re.compile(function), wait) for file, function, wait in _ROWS)
# A thread in these modules waits on behalf of an outer frame, whose row decides.
_GENERIC = frozenset({LOCK, NETWORK})

# By the text of the line at which user code stands.
_TEXTS: Sequence[tuple[str, Wait]] = (
    (r"\.acquire\(|\bwith\b.*\block|\.join\(|\.wait\(", Wait(LOCK, messages.WAITS_FOR_LOCK)),
    (r"\bos\.read\(|pipe|\.communicate\(|\bselect\(|stdout|stdin", Wait(PIPE, messages.WAITS_FOR_PIPE)),
    (r"\.recv\w*\(|\.accept\(|\.connect\(|\.sendall\(|urlopen\(", Wait(NETWORK, messages.WAITS_FOR_NETWORK)),
    (r"\bopen\(|\.(read|write)\w*\(|\.(stat|exists|fsync|load)\(", Wait(FILE, messages.WAITS_FOR_FILE)),
    (r"\.get\(|\.put\(", Wait(QUEUE, messages.WAITS_FOR_QUEUE)),
)  # fmt: skip
_TEXT_TABLE = tuple((re.compile(text, re.IGNORECASE), wait) for text, wait in _TEXTS)


def wait_of(thread: Thread, text: str) -> Wait | None:
    """Return what a thread waits for; None if its place does not say. ``text``: the line of its user frame."""
    generic: Wait | None = None
    for frame in thread.frames:
        if frame == thread.user_frame:
            break
        fitting = (wait for file, name, wait in _TABLE if file.search(frame.file) and name.search(frame.function))
        found = next(fitting, None)
        if found is not None and found.on not in _GENERIC:
            return found
        generic = generic or found
    if generic is not None or thread.user_frame is None:
        return generic
    is_innermost = thread.frames[0] == thread.user_frame
    return next((wait for pattern, wait in _TEXT_TABLE if pattern.search(text)), None) if is_innermost else None
