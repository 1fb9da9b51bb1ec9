"""What passes between the master and a trainer, with its JSON form on the wire."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from runtime.contract import MASTER, Member
from runtime.data.dataset import Chunk


class Trainer(NamedTuple):
    """One life of a trainer. The incarnation tells a restarted one from the one before."""

    index: int  # type: ignore[assignment]  # that tuples have a method of this name does not matter here
    incarnation: int

    def __str__(self) -> str:
        return f"trainer-{self.index}"


class Unread(StrEnum):
    """What becomes of a task whose data no trainer can read."""

    FAIL_JOB = "fail_job"
    LEAVE_OUT = "leave_out"  # of the pass


def serving(members: Iterable[Member]) -> Member | None:
    """The master that serves: the first of those that live. The others stand by. None while there is none."""
    masters = (member for member in members if member.role == MASTER)
    return min(masters, key=lambda member: member.incarnation, default=None)


class Task(NamedTuple):
    """Work to do: the records of ``chunks``. ``epoch`` counts how often the task was handed out, over all passes.

    ``ranges`` (first, end) say which of the records, counted from 0 through the chunks; None: all. The parameters
    contain the first ``skip`` batches already. ``prefetched`` are the trainer's next tasks, in their order: it begins
    them when this one is done.
    """

    pass_id: int
    task_id: int
    epoch: int
    chunks: tuple[Chunk, ...]
    ranges: tuple[tuple[int, int], ...] | None = None
    skip: int = 0
    prefetched: tuple[Task, ...] = ()


class Ahead(NamedTuple):
    """What a trainer has been given and has not begun, in order. ``ended`` is the pass of which nothing else is due to
    it, once it has done these; None where more may come. ``then`` are the first tasks that it is dealt in the pass
    after that, if all goes as usual: they may be read, and are not given. Their ``epoch`` is not known yet, and 0.
    """

    tasks: tuple[Task, ...] = ()
    ended: int | None = None
    then: tuple[Task, ...] = ()


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
    body = dict(zip(_FIELDS[type(answer)], (_NAMES[type(answer)], *answer), strict=True))
    if isinstance(answer, Task):
        body["prefetched"] = [answer_to_json(task) for task in answer.prefetched]
    return body


def answer_from_json(body: Mapping[str, Any]) -> Answer:
    """Raises KeyError, TypeError or ValueError for a body that is no answer."""
    kind = _TYPES[body["answer"]]
    if kind is not Task:
        answer: Answer = kind(**{name: body[name] for name in kind._fields})
        return answer
    return _task_from_json(body)


def ahead_to_json(ahead: Ahead) -> dict[str, Any]:
    tasks, then = ([answer_to_json(task) for task in some] for some in (ahead.tasks, ahead.then))
    return {"tasks": tasks, "ended": ahead.ended, "then": then}


def ahead_from_json(body: Mapping[str, Any]) -> Ahead:
    """Raises KeyError, TypeError or ValueError for a body that is none."""
    tasks, then = (tuple(map(_task_from_json, body[name])) for name in ("tasks", "then"))
    return Ahead(tasks, body["ended"], then)


def _task_from_json(body: Mapping[str, Any]) -> Task:
    ranges = body["ranges"]
    return Task(
        body["pass_id"],
        body["task_id"],
        body["epoch"],
        tuple(Chunk(*chunk) for chunk in body["chunks"]),
        None if ranges is None else tuple((first, end) for first, end in ranges),
        body["skip"],
        tuple(map(_task_from_json, body["prefetched"])),
    )


_TYPES: Mapping[str, Any] = {"task": Task, "wait": Wait, "pass_end": PassEnd, "job_done": JobDone}
_NAMES = {kind: name for name, kind in _TYPES.items()}
_FIELDS = {kind: ("answer", *kind._fields) for kind in _NAMES}
