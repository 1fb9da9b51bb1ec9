"""The calls ``samples`` and ``objects``: where a replica spends its time, and what fills its memory."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from runtime.agent.control import asking, processes
from runtime.agent.control.asking import NoAnswer, NotInspectable
from runtime.agent.control.call import Call, Refusal
from runtime.agent.control.processes import Process
from runtime.inspection import inside

SLACK_SECONDS = 3.0  # beyond the time of a recording
OBJECTS_SECONDS = 5.0
_STACKS, _DEPTH, _TEXT, _TYPES = 5000, 110, 400, 50
_LONGEST = 900 * 1024  # characters of all stacks together

_Read = TypeVar("_Read")


def samples(call: Call) -> Mapping[str, Any]:
    """Record for ``seconds``. Answers ``{"samples": n, "stacks": {"thread;function;function": count}}``."""
    seconds = call.request.get("seconds")
    if not isinstance(seconds, int | float) or not 0.1 <= seconds <= inside.LONGEST_SECONDS:
        raise Refusal("invalid", f"seconds must be between 0.1 and {inside.LONGEST_SECONDS:g}.")
    answers = _ask_all(call, {"call": "samples", "seconds": seconds}, seconds + SLACK_SECONDS, _recorded)
    if not answers:
        raise Refusal("no_answer", "No Python process of the replica answered.")
    return {"samples": max(recorded.samples for _, recorded in answers), "stacks": folded(answers)}


def objects(call: Call) -> Mapping[str, Any]:
    """Count objects by type. Answers a list of processes with ``resident`` bytes and ``types``."""
    answers = _ask_all(call, {"call": "objects"}, OBJECTS_SECONDS, _counted)
    return {
        "processes": [
            {"process": process.inner, "name": process.name[:_TEXT], "resident": process.resident, **counted}
            for process, counted in answers
        ]
    }


@dataclass(frozen=True)
class Recorded:
    """The samples of one process: how many, and how often each stack was found."""

    samples: int
    stacks: Mapping[str, int]


def _recorded(answer: dict[str, Any]) -> Recorded:
    counts: Counter[str] = Counter()
    for parts, count in _stacks(answer):
        counts[";".join(filter(None, map(_clean, parts)))] += count
    return Recorded(_count(answer.get("samples")), _most_frequent(counts))


def _counted(answer: dict[str, Any]) -> dict[str, Any]:
    types = [{"type": name, "count": count} for name, count in _types(answer)]
    return {"objects": _count(answer.get("objects")), "types": types}


def _ask_all(
    call: Call, request: dict[str, Any], seconds: float, read: Callable[[dict[str, Any]], _Read]
) -> list[tuple[Process, _Read]]:
    """Ask all Python processes of the replica at the same time, and return what was read of those that answered."""
    found = [process for process in processes.of(call.child) if not process.is_stopped]
    answers: dict[int, _Read] = {}

    def ask(process: Process) -> None:
        with contextlib.suppress(NoAnswer, NotInspectable):
            answers[process.pid] = asking.ask(call.settings.temporary, process, request, seconds, read)

    askers = [threading.Thread(target=ask, args=(process,), daemon=True) for process in found]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join(seconds + 1.0)
    return [(process, answers[process.pid]) for process in found if process.pid in answers]


def folded(answers: Sequence[tuple[Process, Recorded]]) -> dict[str, int]:
    """Merge the stacks of all processes, the most frequent ones within the limits. Pure."""
    counts: Counter[str] = Counter()
    for process, recorded in answers:
        prefix = f"{_clean(f'{process.name}-{process.inner}')};" if len(answers) > 1 else ""
        for stack, count in recorded.stacks.items():
            counts[prefix + stack] += count
    return _most_frequent(counts)


def _most_frequent(counts: Counter[str]) -> dict[str, int]:
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
