"""Variables of the frames of a held program: name, type, size and a short text. Bounded in number, length and time.

Containers and arrays are described by their first elements. The text of another object is its ``repr``, which is code
of the program: it runs in a thread of its own, and the answer does not wait for it longer than ``SECONDS``.

Standard library only, without imports that the program would notice; any Python from 3.8 on.
"""

from __future__ import annotations

import _thread
import sys
from itertools import islice

TYPE_CHECKING = False
if TYPE_CHECKING:  # ``typing`` takes milliseconds to import, in each Python process
    from collections.abc import Iterator
    from types import TracebackType
    from typing import Any

SECONDS = 3.0
FRAMES, VARIABLES = 40, 100
NAME, TEXT, MESSAGE = 200, 200, 1000
# Characters of all names and texts of one answer.
CHARACTERS = 400_000
_ELEMENTS, _DEPTH = 6, 2
_INTEGER_BITS = 1024
# Types of values that only repeat the program's text.
_LEFT_OUT = (type(sys), type, type(lambda: None), type(len))

_busy = _thread.allocate_lock()


def describe(error: BaseException, where: TracebackType | None) -> dict[str, Any]:
    """Return the exception and its frames, the innermost first, with the variables that could be described in time.

    ``complete``: nothing was left out.
    """
    answer: dict[str, Any] = {"exception": type(error).__name__[:NAME], "frames": [], "complete": False}
    if not _busy.acquire(timeout=SECONDS):
        return answer
    done = _thread.allocate_lock()
    done.acquire()
    _thread.start_new_thread(_fill, (answer, error, where, done))
    done.acquire(timeout=SECONDS)
    return {**answer, "frames": [{**frame, "variables": list(frame["variables"])} for frame in list(answer["frames"])]}


def _fill(answer: dict[str, Any], error: BaseException, where: TracebackType | None, done: Any) -> None:
    try:
        answer["message"] = _guarded(str, error)[:MESSAGE]
        answer["complete"] = _describe_frames(answer["frames"], list(_frames(where)))
    finally:
        _busy.release()
        done.release()


def _frames(where: TracebackType | None) -> Iterator[Any]:
    while where is not None:
        yield where.tb_frame, where.tb_lineno
        where = where.tb_next


def _describe_frames(frames: list[dict[str, Any]], found: list[Any]) -> bool:
    """Append the frames to ``frames``. Return whether nothing was left out."""
    left = CHARACTERS
    complete = len(found) <= FRAMES
    for frame, line in found[::-1][:FRAMES]:
        code = frame.f_code
        name = str(getattr(code, "co_qualname", code.co_name))[:NAME]
        variables: list[dict[str, Any]] = []
        frames.append({"file": code.co_filename[-NAME:], "line": line or 0, "function": name, "variables": variables})
        shown = [(name, value) for name, value in list(frame.f_locals.items()) if _is_shown(name, value)]
        complete = complete and len(shown) <= VARIABLES
        for name, value in shown[:VARIABLES]:
            one = _variable(name, value)
            left -= sum(len(str(part)) for part in one.values())
            if left < 0:
                return False
            variables.append(one)
    return complete


def _is_shown(name: Any, value: Any) -> bool:
    return isinstance(name, str) and not name.startswith("__") and not isinstance(value, _LEFT_OUT)


def _variable(name: str, value: Any) -> dict[str, Any]:
    kind = type(value)
    module = str(kind.__module__)
    named = kind.__qualname__ if module in ("builtins", "__main__") else f"{module}.{kind.__qualname__}"
    return {
        "name": name[:NAME],
        "type": named[:NAME],
        "size": _size(value),
        "shape": _guarded(_shape, value)[:NAME],
        "text": _guarded(_text, value)[:TEXT],
    }


def _guarded(describe: Any, value: Any) -> str:
    try:
        return str(describe(value))
    except BaseException as error:  # noqa: BLE001  code of the program may raise anything
        return f"<{type(error).__name__}>"


def _size(value: Any) -> int | None:
    """Return the bytes of an array's elements, or of the object without what it refers to; None if unknown."""
    try:
        size = value.nbytes if _is_array(value) else sys.getsizeof(value)
    except BaseException:  # noqa: BLE001  code of the program may raise anything
        return None
    return size if type(size) is int and 0 <= size < 2**63 else None


def _is_array(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] in ("numpy", "torch") and hasattr(value, "dtype")


def _shape(value: Any) -> str:
    if _is_array(value):
        device = getattr(value, "device", "cpu")
        return f"{tuple(value.shape)} {value.dtype}" + ("" if str(device) == "cpu" else f" {device}")
    if isinstance(value, (list, tuple, dict, set, frozenset, str, bytes, bytearray)):
        return f"[{len(value)}]"
    return ""


def _text(value: Any, depth: int = _DEPTH) -> str:
    kind = type(value)
    if kind is int and value.bit_length() > _INTEGER_BITS:
        return f"<{value.bit_length()} bits>"
    if kind in (str, bytes, bytearray):
        return repr(value[:TEXT]) + ("…" if len(value) > TEXT else "")
    if kind in (list, tuple, set, frozenset, dict):
        return _elements(value, depth)
    if _is_array(value):
        return _numbers(value)
    return repr(value)


def _elements(value: Any, depth: int) -> str:
    opening, closing = "[]" if isinstance(value, list) else "()" if isinstance(value, tuple) else "{}"
    if depth == 0:
        return f"{opening}…{closing}" if value else opening + closing
    if isinstance(value, dict):
        parts = [f"{_text(key, 0)}: {_text(one, depth - 1)}" for key, one in islice(value.items(), _ELEMENTS)]
    else:
        parts = [_text(one, depth - 1) for one in islice(value, _ELEMENTS)]
    return opening + ", ".join(parts + ["…"] * (len(value) > _ELEMENTS)) + closing


def _numbers(value: Any) -> str:
    """Return the first elements of an array in this process's memory, without a copy of the others."""
    if type(value).__module__.partition(".")[0] == "torch":
        flat = value.detach().reshape(-1)[:_ELEMENTS].tolist() if value.is_contiguous() else []
        count = value.numel()
    else:
        flat = [] if value.dtype.hasobject else value.flat[:_ELEMENTS].tolist()
        count = value.size
    shown = [f"{one:.6g}" if isinstance(one, float) else repr(one) for one in flat]
    return "[" + ", ".join(shown + ["…"] * (count > len(flat))) + "]"
