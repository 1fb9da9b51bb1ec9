"""Diagnosis of a stall in one message: which process stands at which line, and who waits for it. Pure.

Each replica gets a finding from its stack, or from the last report of its step where there is none. The findings are
ranked by how surely they are a cause (``RANK``): a stopped process before one that waits for a lock, and last those
that wait for other processes of the job. If all wait for others, the cause is a server, the network, or the trainers'
different order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from jobs.lifecycle.progress import stacks as waits
from jobs.lifecycle.progress.signs import TrainerSigns
from jobs.lifecycle.progress.stacks import Frame, ReplicaStack, Thread
from jobs.lifecycle.progress.stalls import COLLECTING, STILL_SECONDS
from jobs.messages import stalls as messages
from runtime import contract
from runtime.messages import Template
from runtime.messages.composition import clauses, enumerated

STOPPED, GONE, UNRESPONSIVE, FULL, COLLECTS = "stopped", "gone", "unresponsive", "disk full", "collects"
STANDS, MOVES = "stands", "moves"
OVERLOADED, UNREACHED, SWAPPED, ALL_WAIT, NOT_KNOWN = "overloaded", "unreached", "swapped", "all wait", "not known"
# The surest cause first.
RANK: Final = (
    GONE,
    STOPPED,
    FULL,
    UNRESPONSIVE,
    COLLECTS,
    waits.DECODE,
    waits.LOCK,
    waits.PIPE,
    waits.FILE,
    waits.NETWORK,
    waits.QUEUE,
    STANDS,
    MOVES,
)
_PARTS: Mapping[str, Template] = {
    "read": messages.READING,
    "compute": messages.COMPUTING,
    "push": messages.PUSHING,
}
_STATES: Mapping[str, tuple[str, Template]] = {"stopped": (STOPPED, messages.STOPPED), "gone": (GONE, messages.GONE)}


@dataclass(frozen=True)
class Facts:
    """Facts beside the stacks. ``now`` is a unix time.

    ``source`` returns the text of a line of the job's own files by file name and number; empty if it is unknown.
    """

    now: float
    source: Callable[[str, int], str] = field(default=lambda file, line: "")


class Diagnosis(NamedTuple):
    """``text`` is a clause; ``replica`` the process that causes the stall, or empty; ``cause`` is a kind of finding."""

    text: str
    replica: str
    cause: str


class _Finding(NamedTuple):
    replica: str
    kind: str  # a member of RANK, or of ``waits.OF_OTHERS``
    text: str
    place: Frame | None = None


def diagnose(
    stacks: Sequence[ReplicaStack], signs: Mapping[str, TrainerSigns], replicas: Sequence[str], facts: Facts
) -> Diagnosis:
    """Return the diagnosis. ``replicas`` are the names of all that run; ``stacks`` may lack some."""
    by_name = {stack.replica: stack for stack in stacks}
    trainers = [name for name in replicas if name.startswith(contract.TRAINER)]
    findings = {name: _finding(name, by_name.get(name), signs.get(name), facts) for name in trainers}
    servers = [by_name[name] for name in replicas if name in by_name and name not in findings]
    found = (*map(_server_finding, servers), *findings.values())
    causes = [one for one in found if one is not None and one.kind in RANK]
    if causes:
        first = min(causes, key=lambda one: RANK.index(one.kind))
        return Diagnosis(_with_waiters(first, findings), first.replica, first.kind)
    waiting = [one for one in findings.values() if one is not None]
    return _of_waiting(waiting, servers)


def _finding(name: str, stack: ReplicaStack | None, signs: TrainerSigns | None, facts: Facts) -> _Finding | None:
    if stack is not None and stack.state in _STATES:
        kind, text = _STATES[stack.state]
        return _Finding(name, kind, text(replica=name))
    main = stack.main if stack is not None else None
    if stack is not None and stack.state != waits.RUNNING:
        return _Finding(name, UNRESPONSIVE, _placed(main, name, messages.UNRESPONSIVE, messages.UNRESPONSIVE_AT))
    standing = _standing(name, stack, main, facts) if stack is not None and main is not None and main.frames else None
    if stack is not None and stack.full and (standing is None or standing.kind not in waits.OF_OTHERS):
        return _Finding(name, FULL, _placed(main, name, messages.DISK_FULL, messages.DISK_FULL_AT))
    if signs is not None and signs.collecting >= COLLECTING and not signs.is_silent(facts.now):
        return _Finding(name, COLLECTS, _collects(main, name, signs.collecting))
    return standing or _from_signs(name, signs, facts.now)


def _standing(name: str, stack: ReplicaStack, main: Thread, facts: Facts) -> _Finding:
    """Return the finding of a process whose stack is known."""
    wait, frame = waits.wait_of(main, _text_of(main.user_frame, facts)), main.user_frame
    if wait is not None and wait.on == waits.DECODE and (reading := stack.named(waits.READING_THREAD)) is not None:
        frame = reading.user_frame or frame
    frame = frame or main.frames[0]
    place, line, function = _file(frame), frame.line, frame.function
    if wait is None:
        return _Finding(name, STANDS, messages.STANDS_AT(replica=name, file=place, line=line, function=function), frame)
    doing = wait.doing()
    text = messages.STANDS_AT_AND(replica=name, file=place, line=line, function=function, doing=doing)
    return _Finding(name, wait.on, text, frame)


def _from_signs(name: str, signs: TrainerSigns | None, now: float) -> _Finding | None:
    """Return the finding of a process without a stack, from the last report of its step."""
    if signs is None:
        return None
    if signs.is_silent(now):
        return _Finding(name, UNRESPONSIVE, messages.UNRESPONSIVE(replica=name))
    if signs.part == "wait":
        return _Finding(name, waits.SERVERS, messages.DOES(replica=name, doing=messages.WAITS_FOR_SERVERS()))
    if signs.part not in _PARTS:
        return None
    kind, text = (STANDS, messages.STANDS_IN_PART) if signs.still >= STILL_SECONDS else (MOVES, messages.MOVES_IN_PART)
    return _Finding(name, kind, text(replica=name, part=_PARTS[signs.part](), count=f"{signs.part_seconds:.0f}"))


def _server_finding(stack: ReplicaStack) -> _Finding | None:
    """Return the finding of a server that cannot answer at all; None if it runs."""
    if stack.state in _STATES:
        kind, text = _STATES[stack.state]
        return _Finding(stack.replica, kind, text(replica=stack.replica))
    if stack.state != waits.RUNNING:
        return _Finding(stack.replica, UNRESPONSIVE, messages.UNRESPONSIVE(replica=stack.replica))
    return None


# --- All wait --------------------------------------------------------------------------------------------------------
def _of_waiting(waiting: Sequence[_Finding], servers: Sequence[ReplicaStack]) -> Diagnosis:
    """Return the diagnosis when each trainer waits for another process."""
    if not waiting:
        return Diagnosis(messages.NOT_KNOWN(), "", NOT_KNOWN)
    places = {one.place for one in waiting}
    if len(places) > 1 and None not in places:
        return Diagnosis(messages.DIFFERENT_PLACES(places=clauses(one.text for one in waiting)), "", SWAPPED)
    names = enumerated([one.replica for one in waiting])
    pservers = [stack for stack in servers if stack.replica.startswith(contract.PSERVER)]
    if busy := next((stack for stack in pservers if _is_busy(stack)), None):
        return Diagnosis(_wait_for(messages.OVERLOADED(replica=busy.replica), waiting), busy.replica, OVERLOADED)
    if pservers:
        text = messages.UNREACHED(replica=pservers[0].replica)
        return Diagnosis(_wait_for(text, waiting), pservers[0].replica, UNREACHED)
    return Diagnosis(messages.ALL_WAIT(replicas=names), "", ALL_WAIT)


def _is_busy(stack: ReplicaStack) -> bool:
    """Return whether a thread of the server works: its innermost frame is code of the server or of its kernels."""
    return any(
        _BUSY in thread.frames[0].file and not thread.frames[0].function.startswith(_IDLE)
        for thread in stack.threads
        if thread.frames and not thread.native
    )


_BUSY: Final = "runtime/p"  # runtime/pserver, runtime/parameters; runtime/protocol reads and writes sockets
_IDLE: Final = ("main", "run", "wait", "serve", "receive", "accept", "recv", "_read", "fill", "poll", "look", "sleep")


def _with_waiters(cause: _Finding, findings: Mapping[str, _Finding | None]) -> str:
    return _wait_for(
        cause.text,
        [one for one in findings.values() if one is not None and one is not cause and one.kind in waits.OF_OTHERS],
    )


def _wait_for(text: str, waiting: Sequence[_Finding]) -> str:
    """Add those who wait for the cause."""
    if not waiting:
        return text
    template = messages.WAITS_FOR_IT if len(waiting) == 1 else messages.WAIT_FOR_IT
    return template(text=text, replicas=enumerated([one.replica for one in waiting]))


# --- Texts -----------------------------------------------------------------------------------------------------------
def _file(frame: Frame) -> str:
    return frame.file.rpartition("/")[2]


def _placed(thread: Thread | None, name: str, plain: Template, placed: Template) -> str:
    frame = thread.user_frame if thread is not None else None
    if frame is None:
        return plain(replica=name)
    return placed(replica=name, file=_file(frame), line=frame.line, function=frame.function)


def _collects(thread: Thread | None, name: str, share: float) -> str:
    frame = thread.user_frame if thread is not None else None
    percent = f"{100 * share:.0f}"
    if frame is None:
        return messages.COLLECTS(replica=name, percent=percent)
    place, line, function = _file(frame), frame.line, frame.function
    return messages.COLLECTS_AT(replica=name, percent=percent, file=place, line=line, function=function)


def _text_of(frame: Frame | None, facts: Facts) -> str:
    return facts.source(frame.file, frame.line) if frame is not None else ""
