"""The call ``stacks``: the stacks of all threads of all processes of the replica, now.

Each Python process is asked at the same time. One that does not answer is made to write its stacks by a signal, which
also works while a thread holds the interpreter's lock in native code.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from runtime.agent.control import asking, processes
from runtime.agent.control.asking import NoAnswer, NotInspectable
from runtime.agent.control.call import Call
from runtime.agent.control.processes import Process
from runtime.inspection import dump_text
from runtime.inspection.dump_text import FRAMES, TEXT, THREADS

ASK_SECONDS, DUMP_SECONDS = 0.4, 0.4
# The file of the thread by which a process is asked; it is not shown.
_OWN_FILE = "runtime/inspection/inside.py"
# Bytes of the answer: one frame of the control channel, with some to spare.
_LONGEST = 900 * 1024
# A file system with less free space is full, in bytes.
_FULL_BYTES = 1024 * 1024

RUNNING, STOPPED, UNRESPONSIVE, GONE = "running", "stopped", "unresponsive", "gone"
# Codes of the remarks about a replica; the portal has the messages.
NOTE_STOPPED, NOTE_LOCK_HELD = "stopped", "lock_held"
NOTE_SIGNAL_TAKEN, NOTE_NO_ANSWER, NOTE_NOT_PYTHON = "signal_taken", "no_answer", "not_python"


@dataclass(frozen=True)
class Thread:
    """``process``: number of its process, as the process sees it. ``native``: Python does not know the thread."""

    id: int
    name: str
    native: bool
    process: int
    frames: tuple[tuple[str, int, str], ...] = ()


@dataclass(frozen=True)
class Look:
    """What was found in one process."""

    state: str
    note: str = ""
    threads: tuple[Thread, ...] = ()


def stacks(call: Call) -> Mapping[str, Any]:
    found = processes.of(call.child)
    looks: dict[int, Look] = {}

    def look(process: Process) -> None:
        looks[process.pid] = look_into(call, process)

    askers = [threading.Thread(target=look, args=(process,), daemon=True) for process in found]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join(ASK_SECONDS + DUMP_SECONDS + 1.0)
    directories = (call.settings.work, call.settings.output, call.settings.temporary)
    answer = summary([looks[process.pid] for process in found if process.pid in looks])
    return {**answer, "full": any(map(is_full, directories))}


def is_full(directory: Path) -> bool:
    """Return whether the file system of a directory has no space left, or no files; False if that is unknown."""
    with suppress(OSError):
        found = os.statvfs(directory)
        return found.f_bavail * found.f_frsize < _FULL_BYTES or (found.f_files > 0 and found.f_favail == 0)
    return False


def look_into(call: Call, process: Process) -> Look:
    names = {inner: name[:TEXT] for _, inner, name in processes.tasks(process.pid)}
    natives = tuple(Thread(inner, name, True, process.inner) for inner, name in names.items())
    if process.is_stopped:
        return Look(STOPPED, NOTE_STOPPED, natives)
    try:
        threads = asking.ask(
            call.settings.temporary,
            process,
            {"call": "stacks"},
            ASK_SECONDS,
            lambda answer: tuple(_answered(answer, process, names)),
        )
        return Look(RUNNING, "", tuple(_within_work(call, one) for one in threads))
    except NotInspectable:
        # A forked child has no socket, and is not at fault; a program that is not Python has neither.
        state, silent = RUNNING, NOTE_NOT_PYTHON
    except NoAnswer:
        now = processes.read(process.pid)
        if now is None or now.is_stopped:
            return Look(GONE) if now is None else Look(STOPPED, NOTE_STOPPED, natives)
        state, silent = UNRESPONSIVE, NOTE_NO_ANSWER
    try:
        dumped = dump_text.parse(asking.dump(process, DUMP_SECONDS))
    except (NotInspectable, NoAnswer) as error:
        if state is UNRESPONSIVE and isinstance(error, NotInspectable):
            silent = NOTE_SIGNAL_TAKEN
        return Look(state, silent, natives)
    dumped = [one for one in dumped if not (one.frames and one.frames[-1][0].endswith(_OWN_FILE))]
    note = NOTE_LOCK_HELD if state is UNRESPONSIVE else ""
    written = (Thread(one.identity, "", False, process.inner, one.frames) for one in dumped)
    return Look(state, note, tuple(_within_work(call, one) for one in written))


def _within_work(call: Call, thread: Thread) -> Thread:
    """Name files of the job's code relative to its directory, which differs between the replicas of a machine."""
    start = f"{call.settings.work}/"
    return replace(thread, frames=tuple((file.removeprefix(start), line, name) for file, line, name in thread.frames))


def _answered(answer: Mapping[str, Any], process: Process, names: Mapping[int, str]) -> Iterator[Thread]:
    """Yield the threads that Python knows, then the others, which have a name of the kernel alone."""
    own = answer.get("own")  # the thread that answers is not the program's
    known = {own} if isinstance(own, int) else set[int]()
    listed = answer.get("threads")
    for one in (listed if isinstance(listed, list) else [])[:THREADS]:
        if not isinstance(one, dict):
            continue
        native = one.get("native_id")
        number = native if isinstance(native, int) else 0
        known.add(number)
        yield Thread(number, str(one.get("name", ""))[:TEXT], False, process.inner, tuple(_frames(one.get("frames"))))
    yield from (Thread(inner, name, True, process.inner) for inner, name in names.items() if inner not in known)


def _frames(listed: object) -> Iterator[tuple[str, int, str]]:
    for one in (listed if isinstance(listed, list) else [])[:FRAMES]:
        if isinstance(one, list) and len(one) == 3 and isinstance(one[1], int):
            yield str(one[0])[-TEXT:], max(0, min(one[1], 2**31)), str(one[2])[:TEXT]


def summary(looks: list[Look]) -> dict[str, Any]:
    """Return the answer of the call: the state of the replica's first process, and the threads of all. Bounded. Pure.

    A process that is not Python counts only where no process of the replica is.
    """
    python = [one for one in looks if one.note != NOTE_NOT_PYTHON] or looks
    if not python:
        return {"state": GONE, "note": "", "threads": [], "left_out": 0}
    worst = max(python, key=lambda one: _SEVERITY[one.state])
    threads: list[dict[str, Any]] = []
    size = left_out = 0
    for thread in (thread for one in python for thread in one.threads):
        document = _thread_json(thread)
        size += len(json.dumps(document, ensure_ascii=False).encode("utf-8", "replace"))
        if size > _LONGEST or len(threads) == THREADS:
            left_out += 1
        else:
            threads.append(document)
    return {"state": worst.state, "note": worst.note, "threads": threads, "left_out": left_out}


def _thread_json(thread: Thread) -> dict[str, Any]:
    frames = [{"file": file, "line": line, "function": function} for file, line, function in thread.frames]
    return {**asdict(thread), "frames": frames}


_SEVERITY = {GONE: 0, RUNNING: 1, UNRESPONSIVE: 2, STOPPED: 3}
