"""Stacks of replicas as agents answer them: checked, bounded, and grouped by equal stacks. Pure.

Agents pass on what the processes of user code say, so everything here is hostile input.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from jobs.messages import control as messages
from runtime.messages import Template

RUNNING, STOPPED, UNRESPONSIVE, GONE = "running", "stopped", "unresponsive", "gone"
STATES = (RUNNING, STOPPED, UNRESPONSIVE, GONE)
NOTES: Mapping[str, Template] = {
    "stopped": messages.PROCESS_STOPPED,
    "lock_held": messages.INTERPRETER_LOCK_HELD,
    "signal_taken": messages.STACK_SIGNAL_TAKEN,
    "no_answer": messages.PROCESS_SILENT,
    "not_python": messages.PROCESS_NOT_PYTHON,
}
THREADS, FRAMES, TEXT = 200, 100, 300
# Characters of all stacks in one answer.
CHARACTERS = 4 * 2**20
GROUPS = 200
_LARGEST = 2**53


@dataclass(frozen=True)
class StackFrame:
    file: str
    line: int
    function: str


@dataclass(frozen=True)
class StackThread:
    """``native``: Python does not know the thread; it has no frames. ``process``: the process's own number."""

    id: int
    name: str
    native: bool
    process: int = 0
    frames: tuple[StackFrame, ...] = ()

    @property
    def characters(self) -> int:
        return 100 + len(self.name) + sum(60 + len(frame.file) + len(frame.function) for frame in self.frames)


@dataclass(frozen=True)
class ReplicaStacks:
    """``note``: a message about the state, or empty. ``left_out``: the number of threads beyond the limits.

    ``full``: a file system of the replica's directories has no space left.
    """

    replica: str
    state: str
    note: str = ""
    threads: tuple[StackThread, ...] = ()
    left_out: int = 0
    full: bool = False


@dataclass(frozen=True)
class Group:
    """Threads with equal stacks. ``members``: replica and thread name. ``roles``: number of replicas by role."""

    frames: tuple[StackFrame, ...]
    members: tuple[tuple[str, str], ...]
    roles: Mapping[str, int] = field(default_factory=dict)


def read(replica: str, answer: Mapping[str, Any]) -> ReplicaStacks:
    """Return the answer of the agent's call ``stacks``, without what is not of the expected form."""
    state, note = answer.get("state"), answer.get("note")
    listed = answer.get("threads")
    threads = tuple(_thread(one) for one in (listed if isinstance(listed, list) else [])[:THREADS] if _is_object(one))
    return ReplicaStacks(
        replica,
        state if state in STATES else UNRESPONSIVE,
        NOTES[note]() if isinstance(note, str) and note in NOTES else "",
        threads,
        _number(answer.get("left_out")),
        answer.get("full") is True,
    )


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


def _thread(document: Mapping[str, Any]) -> StackThread:
    listed = document.get("frames")
    return StackThread(
        id=_number(document.get("id")),
        name=_text(document.get("name")),
        native=document.get("native") is True,
        process=_number(document.get("process")),
        frames=tuple(
            StackFrame(_text(one.get("file")), _number(one.get("line")), _text(one.get("function")))
            for one in (listed if isinstance(listed, list) else [])[:FRAMES]
            if isinstance(one, dict)
        ),
    )


def _text(value: object) -> str:
    """Return a text without characters that are not printed; a lone surrogate cannot be stored or sent."""
    text = value[:TEXT] if isinstance(value, str) else ""
    return "".join(letter if letter.isprintable() else "�" for letter in text)


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LARGEST else 0


def bounded(all_stacks: Iterable[ReplicaStacks], characters: int = CHARACTERS) -> list[ReplicaStacks]:
    """Return the stacks with at most so many characters. Each replica has an equal share."""
    listed = list(all_stacks)
    share = characters // max(1, len(listed))
    return [_within(one, share) for one in listed]


def _within(stacks: ReplicaStacks, share: int) -> ReplicaStacks:
    kept: list[StackThread] = []
    for thread in stacks.threads:
        share -= thread.characters
        if share < 0:
            break
        kept.append(thread)
    left_out = stacks.left_out + len(stacks.threads) - len(kept)
    return replace(stacks, threads=tuple(kept), left_out=left_out)


def grouped(all_stacks: Iterable[ReplicaStacks]) -> list[Group]:
    """Group the threads that Python knows by equal stacks, the largest groups first.

    Two stacks are equal if files, lines and functions of all frames are.
    """
    members: dict[tuple[StackFrame, ...], list[tuple[str, str]]] = {}
    for stacks in all_stacks:
        for thread in stacks.threads:
            if thread.frames:
                members.setdefault(thread.frames, []).append((stacks.replica, thread.name))
    groups = [Group(frames, tuple(found), _roles(replica for replica, _ in found)) for frames, found in members.items()]
    return sorted(groups, key=lambda group: (-sum(group.roles.values()), -len(group.members), group.members))[:GROUPS]


def _roles(replicas: Iterable[str]) -> dict[str, int]:
    roles: dict[str, int] = {}
    for replica in sorted(set(replicas)):
        role = replica.rpartition("-")[0]
        roles[role] = roles.get(role, 0) + 1
    return roles


# --- Flame graphs ----------------------------------------------------------------------------------------------------
_STACKS, _STACK_TEXT, _PROCESSES, _TYPES = 5000, 20_000, 64, 50


def read_folded(answer: Mapping[str, Any], characters: int = CHARACTERS) -> dict[str, int]:
    """Return the folded stacks of the agent's call ``samples``: frames joined by semicolons, with their counts.

    The agent puts the most frequent ones first; those beyond so many characters are left out.
    """
    stacks = answer.get("stacks")
    items = list(stacks.items())[:_STACKS] if isinstance(stacks, dict) else []
    kept: dict[str, int] = {}
    for stack, count in items:
        if not _number(count):
            continue
        characters -= len(stack[:_STACK_TEXT])
        if characters < 0:
            break
        kept["".join(letter if letter.isprintable() else "�" for letter in stack[:_STACK_TEXT])] = count
    return kept


def read_memory(answer: Mapping[str, Any], characters: int = CHARACTERS) -> list[dict[str, Any]]:
    """Return the processes of the agent's call ``objects``: memory in bytes, and objects by type.

    Processes beyond so many characters are left out.
    """
    kept = []
    for process in _processes(answer.get("processes")):
        characters -= len(process["name"]) + sum(len(kind["type"]) for kind in process["types"])
        if characters < 0:
            break
        kept.append(process)
    return kept


def _processes(listed: object) -> Iterator[dict[str, Any]]:
    for one in (listed if isinstance(listed, list) else [])[:_PROCESSES]:
        if isinstance(one, dict):
            types = one.get("types")
            yield {
                **{name: _number(one.get(name)) for name in ("process", "resident", "objects")},
                "name": _text(one.get("name")),
                "types": [
                    {"type": _text(kind.get("type")), "count": _number(kind.get("count"))}
                    for kind in (types if isinstance(types, list) else [])[:_TYPES]
                    if isinstance(kind, dict)
                ],
            }
