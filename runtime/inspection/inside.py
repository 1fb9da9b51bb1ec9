"""Answers questions about the process that it runs in: stacks, samples, objects by type, variables of a held program.

* A thread waits at a Unix socket in the temporary directory. It is started without ``threading``, so the program does
  not see it, and it takes no time while nobody asks.
* ``SIGNAL`` makes ``faulthandler`` write the stacks of all threads to a memory file. That also works while a thread
  holds the interpreter's lock in native code. If the program has a handler for the signal, it keeps it.

A forked child has the signal and no thread: it starts none that its program did not start.

Standard library only, without imports that the program would notice; any Python from 3.8 on.
"""

from __future__ import annotations

import _thread
import atexit
import faulthandler
import fcntl
import gc
import json
import os
import signal
import socket
import sys
import time
from collections import Counter
from itertools import islice

from runtime.inspection import holding, variables

TYPE_CHECKING = False
if TYPE_CHECKING:  # ``typing`` takes milliseconds to import, in each Python process
    from types import CodeType, FrameType
    from typing import Any

# A real-time signal, which libraries do not use by default.
SIGNAL = 57
SOCKET_PREFIX = ".regatta-inspection-"
# The memory file is named after its own descriptor: a program that closes all descriptors may reuse the number.
MEMORY_FILE_PREFIX = "regatta-stacks-"
# Descriptors of this module begin here, so that the program's begin where they would without it.
_FIRST_DESCRIPTOR = 400
_THREADS, _FRAMES, _TEXT = 200, 100, 300
_STACKS = 5000  # different stacks in one recording
_OBJECTS = 2_000_000  # objects that are counted
_TYPES = 50
_LONGEST_REQUEST = 4096
_SEND_SECONDS = 5.0
HERTZ = 100
LONGEST_SECONDS = 60.0

_listener: socket.socket | None = None
_own_thread = _main_thread = 0
_dump = -1


def begin(directory: str) -> None:
    """Start. ``directory``: where the agent looks for the socket. Raises OSError."""
    global _listener, _main_thread
    _main_thread = _thread.get_ident()
    _register_signal()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    path = os.path.join(directory, f"{SOCKET_PREFIX}{os.getpid()}")  # noqa: PTH118
    if os.path.exists(path):  # noqa: PTH110  left by a process with the same number
        os.unlink(path)  # noqa: PTH108
    listener.bind(path)
    listener.listen(4)
    _listener = socket.socket(fileno=_high(listener.detach()))
    atexit.register(_remove, path, os.getpid())
    os.register_at_fork(after_in_child=_after_fork)
    _thread.start_new_thread(_serve, (_listener,))
    holding.begin(directory)


def _remove(path: str, pid: int) -> None:
    if os.getpid() == pid and os.path.exists(path):  # noqa: PTH110
        os.unlink(path)  # noqa: PTH108


def _register_signal() -> None:
    global _dump
    if signal.getsignal(SIGNAL) is not signal.SIG_DFL:
        return
    number = _high(os.memfd_create(MEMORY_FILE_PREFIX, os.MFD_CLOEXEC))
    # Only now is the number known, and a memory file keeps its name.
    named = os.memfd_create(f"{MEMORY_FILE_PREFIX}{number}", os.MFD_CLOEXEC)
    os.dup2(named, number, inheritable=False)
    os.close(named)
    fcntl.fcntl(number, fcntl.F_SETFL, fcntl.fcntl(number, fcntl.F_GETFL) | os.O_APPEND)
    _dump = number
    faulthandler.register(SIGNAL, file=number, all_threads=True, chain=False)


def _high(descriptor: int) -> int:
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _FIRST_DESCRIPTOR)
    finally:
        os.close(descriptor)


def _after_fork() -> None:
    """Give a forked child a memory file of its own, and no socket."""
    global _listener
    try:
        if _listener is not None:
            _listener.close()
            _listener = None
        if _dump >= 0 and is_ours():
            os.close(_dump)
            faulthandler.unregister(SIGNAL)
            _register_signal()
    except OSError:
        pass


def is_ours() -> bool:
    """Whether the program has not put a handler of its own in place of ``SIGNAL``'s."""
    return _dump >= 0 and signal.getsignal(SIGNAL) in (signal.SIG_DFL, None)


def _serve(listener: socket.socket) -> None:
    global _own_thread
    _own_thread = _thread.get_ident()
    while True:
        try:
            link, _ = listener.accept()
        except OSError:
            return
        with link:
            try:
                link.settimeout(_SEND_SECONDS)
                request = json.loads(link.recv(_LONGEST_REQUEST))
                answer = _CALLS[request["call"]](request)
                link.sendall(json.dumps(answer).encode("utf-8", "replace"))
            except Exception:  # noqa: BLE001, S110  the peer gets no answer
                pass


# --- Stacks ----------------------------------------------------------------------------------------------------------
def _stacks(request: dict[str, Any]) -> dict[str, Any]:
    known = _known_threads()
    threads = []
    for ident, frame in islice(sys._current_frames().items(), _THREADS):
        if ident != _own_thread:
            name, native = known.get(ident, ("", None))
            threads.append({"native_id": native, "name": name, "frames": list(islice(_walk(frame), _FRAMES))})
    threads.sort(key=lambda thread: thread["native_id"] or 0)
    return {"threads": threads, "own": _thread.get_native_id()}


def _known_threads() -> dict[int, Any]:
    """Return name and native number of each thread that the program has started with ``threading``."""
    # A program that has not imported ``threading`` must not get it from here: it would take this for the main thread.
    module = sys.modules.get("threading")
    known: dict[int, Any] = {_main_thread: ("MainThread", os.getpid())}
    for ident, thread in dict(getattr(module, "_active", {})).items():
        known[ident] = str(thread.name)[:_TEXT], getattr(thread, "native_id", None)
    return known


def _walk(frame: FrameType | None) -> Any:
    """Yield file, line and function, the innermost frame first."""
    while frame is not None:
        code = frame.f_code
        yield code.co_filename[-_TEXT:], frame.f_lineno or 0, _name(code)
        frame = frame.f_back


def _name(code: CodeType) -> str:
    return str(getattr(code, "co_qualname", code.co_name))[:_TEXT]


# --- Samples ---------------------------------------------------------------------------------------------------------
def _samples(request: dict[str, Any]) -> dict[str, Any]:
    """Count stacks for a time. A stack is a thread's name and its functions, the outermost first."""
    seconds = min(LONGEST_SECONDS, max(0.1, float(request["seconds"])))
    counts: Counter[tuple[Any, ...]] = Counter()
    begun = tick = time.monotonic()
    number = lost = 0
    while tick < begun + seconds:
        for ident, frame in sys._current_frames().items():
            if ident == _own_thread:
                continue
            codes: list[CodeType] = []
            walked: FrameType | None = frame
            while walked is not None and len(codes) < _FRAMES:
                codes.append(walked.f_code)
                walked = walked.f_back
            key = (ident, *codes)
            if key in counts or len(counts) < _STACKS:
                counts[key] += 1
            else:
                lost += 1
        number += 1
        now = time.monotonic()
        # A tick that was missed is left out: catching up would cost more than it shows.
        tick += max(1, int((now - tick) * HERTZ) + 1) / HERTZ
        time.sleep(max(0.0, tick - now))
    return {"samples": number, "lost": lost, "seconds": time.monotonic() - begun, "stacks": _folded(counts)}


def _folded(counts: Counter[tuple[Any, ...]]) -> list[Any]:
    known = _known_threads()
    folded: Counter[tuple[str, ...]] = Counter()
    for (ident, *codes), count in counts.items():
        thread = known.get(ident, ("", None))[0] or "thread"
        folded[(thread, *map(_function, reversed(codes)))] += count
    return [[list(stack), count] for stack, count in folded.most_common(_STACKS)]


def _function(code: CodeType) -> str:
    return f"{_name(code)} ({code.co_filename.rpartition('/')[2][-80:]})"


# --- Memory ----------------------------------------------------------------------------------------------------------
def _objects(request: dict[str, Any]) -> dict[str, Any]:
    """Count the objects that the garbage collector knows, by type."""
    objects = gc.get_objects()
    counts = Counter(map(type, islice(objects, _OBJECTS)))
    total = len(objects)
    del objects
    named: Counter[str] = Counter()
    for kind, count in counts.items():
        named[f"{kind.__module__}.{kind.__qualname__}"[:_TEXT]] += count
    return {"objects": total, "counted": min(total, _OBJECTS), "types": named.most_common(_TYPES)}


# --- A held program --------------------------------------------------------------------------------------------------
def _variables(request: dict[str, Any]) -> dict[str, Any]:
    found = holding.held
    return {"held": False} if found is None else {"held": True, **variables.describe(*found)}


_CALLS = {"stacks": _stacks, "samples": _samples, "objects": _objects, "variables": _variables}
