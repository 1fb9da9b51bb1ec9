"""Messages between the master and a trainer, with their JSON form on the wire."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from runtime.contract import MASTER, Member
from runtime.data.dataset import Chunk


class Trainer(NamedTuple):
    """One start of a trainer. The incarnation distinguishes a restarted trainer from the one before."""

    index: int  # type: ignore[assignment]  # that tuples have a method of this name does not matter here
    incarnation: int

    def __str__(self) -> str:
        return f"trainer-{self.index}"


class Unread(StrEnum):
    """What happens to a task whose data no trainer can read."""

    FAIL_JOB = "fail_job"
    LEAVE_OUT = "leave_out"  # of the pass


def serving(members: Iterable[Member]) -> Member | None:
    """Return the master that serves: the first of the live ones. The others are on standby. None if there is none."""
    masters = (member for member in members if member.role == MASTER)
    return min(masters, key=lambda member: member.incarnation, default=None)


class Task(NamedTuple):
    """A unit of work: the records of ``chunks``. ``epoch`` counts how often the task was handed out, over all passes.

    ``ranges`` (first, end) selects records, counted from 0 through the chunks; None selects all. The parameters already
    contain the first ``skip`` batches. ``prefetched`` are the trainer's next tasks, in order; it begins them after this
    one.
    """

    pass_id: int
    task_id: int
    epoch: int
    chunks: tuple[Chunk, ...]
    ranges: tuple[tuple[int, int], ...] | None = None
    skip: int = 0
    prefetched: tuple[Task, ...] = ()


class Ahead(NamedTuple):
    """The tasks that a trainer has been given and has not begun, in order.

    ``ended`` is the pass that ends for the trainer after these tasks; None if more may come. ``then`` are the first
    tasks assigned to it in the next pass in the usual case. They may be read, but are not given yet. Their ``epoch`` is
    not known yet and is 0.
    """

    tasks: tuple[Task, ...] = ()
    ended: int | None = None
    then: tuple[Task, ...] = ()


class Wait(NamedTuple):
    """There is nothing to do now; ask again after ``seconds`` (the master may have waited already)."""

    seconds: float


class PassEnd(NamedTuple):
    """This trainer has no more tasks of this pass. If another trainer is lost, one of its tasks may still come."""

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
    """Read ``answer_to_json``'s form. Raises KeyError, TypeError or ValueError for another body."""
    kind = _TYPES[body["answer"]]
    if kind is not Task:
        answer: Answer = kind(**{name: body[name] for name in kind._fields})
        return answer
    return _task_from_json(body)


def ahead_to_json(ahead: Ahead) -> dict[str, Any]:
    tasks, then = ([answer_to_json(task) for task in some] for some in (ahead.tasks, ahead.then))
    return {"tasks": tasks, "ended": ahead.ended, "then": then}


def ahead_from_json(body: Mapping[str, Any]) -> Ahead:
    """Read ``ahead_to_json``'s form. Raises KeyError, TypeError or ValueError for another body."""
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
