"""What passes between the master and a trainer, with its JSON form on the wire."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from runtime.contract import MASTER, Member
from runtime.data.catalogue import Chunk


@dataclass(frozen=True, order=True, slots=True)
class Trainer:
    """One life of a trainer. The incarnation tells a restarted one from the one before."""

    index: int
    incarnation: int

    def __str__(self) -> str:
        return f"trainer-{self.index}"


def serving(members: Iterable[Member]) -> Member | None:
    """The master that serves: the first of those that live. The others stand by. None while there is none."""
    masters = (member for member in members if member.role == MASTER)
    return min(masters, key=lambda member: member.incarnation, default=None)


class Task(NamedTuple):
    """Work to do: the records of ``chunks``. ``epoch`` counts how often the task was handed out, over all passes.

    ``ranges`` (first, end) say which of the records, counted from 0 through the chunks; None: all.
    """

    pass_id: int
    task_id: int
    epoch: int
    chunks: tuple[Chunk, ...]
    ranges: tuple[tuple[int, int], ...] | None = None


class Wait(NamedTuple):
    """Nothing to do now; ask again after ``seconds`` (the master may have waited already)."""

    seconds: float


class PassEnd(NamedTuple):
    """No more tasks of this pass for this trainer. If another trainer is lost, one of its tasks may still come."""

    pass_id: int


class JobDone(NamedTuple):
    """All passes are over."""


Answer = Task | Wait | PassEnd | JobDone


def answer_to_json(answer: Answer) -> dict[str, Any]:
    return {"answer": _NAMES[type(answer)], **answer._asdict()}


def answer_from_json(body: Mapping[str, Any]) -> Answer:
    """Raises KeyError, TypeError or ValueError for a body that is no answer."""
    fields = {name: value for name, value in body.items() if name != "answer"}
    if "chunks" in fields:
        fields["chunks"] = tuple(Chunk(*chunk) for chunk in fields["chunks"])
        ranges = fields.get("ranges")
        fields["ranges"] = None if ranges is None else tuple((first, end) for first, end in ranges)
    answer: Answer = _TYPES[body["answer"]](**fields)
    return answer


_TYPES: Mapping[str, Any] = {"task": Task, "wait": Wait, "pass_end": PassEnd, "job_done": JobDone}
_NAMES = {kind: name for name, kind in _TYPES.items()}
