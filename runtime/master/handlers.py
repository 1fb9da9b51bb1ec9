"""Requests of trainers: a request's body as an operation on the queue, and the body of the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from runtime.errors import Refused
from runtime.master.group_commit import Operation
from runtime.master.messages import Ahead, Answer, Trainer, Unread, ahead_to_json, answer_to_json
from runtime.master.queue.task_queue import TaskQueue
from runtime.master.types import Key, Verdict
from runtime.messages import training as messages
from runtime.protocol.connection import Message
from runtime.protocol.frames import Op

JOB_FAILED = "job_failed"

Body = Mapping[str, Any]


def operation(request: Message) -> Operation:
    """Return the operation that the request asks for; ``reply`` makes the answer from its result. Raises Refused."""
    head, body = request.head, request.body
    make = _OPERATIONS.get(head.op)
    if make is None:
        raise Refused("unknown_op", messages.MASTER_OPERATION_UNKNOWN(operation=head.op.name))
    try:
        return make(head.op, Trainer(int(body["trainer"]), head.incarnation), body)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise Refused(
            "bad_request", messages.OPERATION_BODY_INVALID(operation=head.op.name, error=f"{error!r}")
        ) from error


def is_notice(request: Message) -> bool:
    """Whether the request gets no answer."""
    return request.head.op is Op.TASK_BEGUN


def reply(request: Message, value: Any) -> Body:
    """Return the body of the answer."""
    return _REPLIES.get(request.head.op, _counted)(value)


def _counted(verdict: Any) -> Body:
    return {"counted": verdict is Verdict.OK}


def _get(op: Op, trainer: Trainer, body: Body) -> Operation:
    request, ended = int(body["request"]), body["ended"]
    last = None if ended is None else int(ended)
    finished = _keys(body["done"], trainer)

    def get(queue: TaskQueue, now: float) -> Answer:
        _take_note(queue, trainer, finished, now)
        return queue.get(trainer, request, last, now)

    return get


def _ahead(op: Op, trainer: Trainer, body: Body) -> Operation:
    finished, begun = _keys(body["done"], trainer), _keys(body["begun"], trainer)

    def ahead(queue: TaskQueue, now: float) -> Ahead:
        _take_note(queue, trainer, finished, now)
        for key in begun:
            queue.begun(key, now)
        return queue.ahead(trainer, now)

    return ahead


def _begun(op: Op, trainer: Trainer, body: Body) -> Operation:
    finished, begun = _keys(body["done"], trainer), _keys(body["begun"], trainer)

    def note(queue: TaskQueue, now: float) -> None:
        for key in finished:
            queue.done(key, now)
        for key in begun:
            queue.begun(key, now)

    return note


def _keys(reported: Any, trainer: Trainer) -> tuple[Key, ...]:
    """Dispatches from their form on the wire: pass, task, epoch."""
    return tuple(Key(int(pass_id), int(task_id), int(epoch), trainer) for pass_id, task_id, epoch in reported)


def _take_note(queue: TaskQueue, trainer: Trainer, finished: Sequence[Key], now: float) -> None:
    """Record the tasks that a trainer finished before this request. Raises Refused if it gets no more tasks."""
    if any(trainer.index == other.index and trainer < other for other in queue.live):
        raise Refused("replaced", messages.REPLICA_REPLACED(replica=trainer))
    for key in finished:
        queue.done(key, now)
    if queue.failed:
        raise Refused(JOB_FAILED, queue.failed)


def _report(op: Op, trainer: Trainer, body: Body) -> Operation:
    key = Key(int(body["pass_id"]), int(body["task_id"]), int(body["epoch"]), trainer)
    why, place = str(body.get("why", "")), body.get("place")
    where = (int(place[0]), int(place[1])) if place else None
    if unread := body.get("unread"):
        action = Unread(unread)
        return lambda queue, now: queue.cannot_read(key, why, action, now)
    reports: Mapping[Op, Operation] = {
        Op.TASK_DONE: lambda queue, now: queue.done(key, now),
        Op.TASK_FAIL: lambda queue, now: queue.fail(key, why, now, where),
        Op.TASK_RELEASE: lambda queue, now: queue.release(key, now),
        Op.TASK_EXTEND: lambda queue, now: queue.extend(key, now),
    }
    return reports[op]


def _save_request(op: Op, trainer: Trainer, body: Body) -> Operation:
    seconds = float(body["seconds"])
    return lambda queue, now: queue.save_request(trainer, seconds, now)


_OPERATIONS: Mapping[Op, Callable[[Op, Trainer, Body], Operation]] = {
    Op.TASK_GET: _get,
    Op.TASK_AHEAD: _ahead,
    Op.TASK_BEGUN: _begun,
    Op.TASK_DONE: _report,
    Op.TASK_FAIL: _report,
    Op.TASK_RELEASE: _report,
    Op.TASK_EXTEND: _report,
    Op.SAVE_REQUEST: _save_request,
}
_REPLIES: Mapping[Op, Callable[[Any], Body]] = {
    Op.TASK_GET: answer_to_json,
    Op.TASK_AHEAD: ahead_to_json,
    Op.SAVE_REQUEST: lambda granted: {"granted": granted},
}
