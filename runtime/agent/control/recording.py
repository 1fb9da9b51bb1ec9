"""The calls ``samples`` and ``objects``: where a replica spends its time, and what fills its memory."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from runtime.agent.control import asking, processes
from runtime.agent.control.asking import NoAnswer, NotInspectable
from runtime.agent.control.call import Call, Refusal
from runtime.agent.control.processes import Process
from runtime.inspection import inside

SLACK_SECONDS = 3.0  # beyond the time of a recording
OBJECTS_SECONDS = 5.0
_STACKS, _DEPTH, _TEXT, _TYPES = 5000, 110, 400, 50
_LONGEST = 900 * 1024  # characters of all stacks together


def samples(call: Call) -> Mapping[str, Any]:
    """Record for ``seconds``. Answers ``{"samples": n, "stacks": {"thread;function;function": count}}``."""
    seconds = call.request.get("seconds")
    if not isinstance(seconds, int | float) or not 0.1 <= seconds <= inside.LONGEST_SECONDS:
        raise Refusal("invalid", f"seconds must be between 0.1 and {inside.LONGEST_SECONDS:g}.")
    answers = _ask_all(call, {"call": "samples", "seconds": seconds}, seconds + SLACK_SECONDS)
    if not answers:
        raise Refusal("no_answer", "No Python process of the replica answered.")
    taken = max((_count(answer.get("samples")) for _, answer in answers), default=0)
    return {"samples": taken, "stacks": folded(answers)}


def objects(call: Call) -> Mapping[str, Any]:
    """Count objects by type. Answers a list of processes with ``resident`` bytes and ``types``."""
    answers = _ask_all(call, {"call": "objects"}, OBJECTS_SECONDS)
    return {
        "processes": [
            {
                "process": process.inner,
                "name": process.name[:_TEXT],
                "resident": process.resident,
                "objects": _count(answer.get("objects")),
                "types": [{"type": name, "count": count} for name, count in _types(answer)],
            }
            for process, answer in answers
        ]
    }


def _ask_all(call: Call, request: dict[str, Any], seconds: float) -> list[tuple[Process, dict[str, Any]]]:
    """Ask all Python processes of the replica at the same time, and return the answers of those that gave one."""
    found = [process for process in processes.of(call.child) if not process.is_stopped]
    answers: dict[int, dict[str, Any]] = {}

    def ask(process: Process) -> None:
        with contextlib.suppress(NoAnswer, NotInspectable):
            answers[process.pid] = asking.ask(call.settings.temporary, process, request, seconds)

    askers = [threading.Thread(target=ask, args=(process,), daemon=True) for process in found]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join(seconds + 1.0)
    return [(process, answers[process.pid]) for process in found if process.pid in answers]


def folded(answers: list[tuple[Process, dict[str, Any]]]) -> dict[str, int]:
    """Merge the stacks of all processes, the most frequent ones within the limits. Pure."""
    counts: Counter[str] = Counter()
    for process, answer in answers:
        prefix = f"{process.name}-{process.inner}" if len(answers) > 1 else ""
        for parts, count in _stacks(answer):
            counts[";".join(filter(None, (_clean(prefix), *map(_clean, parts))))] += count
    kept, size = {}, 0
    for stack, count in counts.most_common(_STACKS):
        size += len(stack.encode("utf-8", "replace")) + 16
        if size > _LONGEST:
            break
        kept[stack] = count
    return kept


def _stacks(answer: Mapping[str, Any]) -> Iterator[tuple[list[str], int]]:
    listed = answer.get("stacks")
    for one in (listed if isinstance(listed, list) else [])[:_STACKS]:
        if isinstance(one, list) and len(one) == 2 and isinstance(one[0], list) and _count(one[1]):
            yield [str(part) for part in one[0][:_DEPTH]], _count(one[1])


def _types(answer: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    listed = answer.get("types")
    for one in (listed if isinstance(listed, list) else [])[:_TYPES]:
        if isinstance(one, list) and len(one) == 2:
            yield str(one[0])[:_TEXT], _count(one[1])


def _clean(part: str) -> str:
    """Return a part of a folded stack: the format separates parts by semicolons and stacks by lines."""
    return "".join(letter if letter.isprintable() and letter != ";" else "?" for letter in part[:_TEXT])


def _count(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value < 2**53 else 0
