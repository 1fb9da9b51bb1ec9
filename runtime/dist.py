"""API for training code: ``from runtime import dist``.

    job = dist.init()
    p = job.params({"w": np.zeros((64, 10), "f4")}, opt=dist.SGD(0.1))
    for x, y in job.steps(job.reader("public/digits", batch=64, shuffle=1024), passes=5):
        cost, grads = loss_and_grad(p, x, y)
        p.push_pull(grads, n=len(y))
        job.report(cost=cost)
    job.save_model("model.npz")

The same script runs alone (``python train.py``) and as one of many trainers of a job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime import contract
from runtime.agent_channel import Channel
from runtime.data.formats.example import decode as example
from runtime.errors import Lost, RegattaError, UsageError
from runtime.messages import training as messages
from runtime.parameters.initializers import Initial, Normal, Uniform, Zeros
from runtime.parameters.lr_schedules import Cosine, Linear, Schedule, Steps, WarmUp
from runtime.parameters.optimisers import SGD, Adagrad, Adam, Momentum, Nesterov, Optimiser
from runtime.trainer.environment import Alone, Attached, JobContext, end_for_restart, leave_on_sigterm
from runtime.trainer.events import BeginIteration, BeginPass, EndIteration, EndPass, Event
from runtime.trainer.job import Job
from runtime.trainer.params import Params, Pending
from runtime.trainer.tables import SharedTable
from runtime.trainer.tasks.reader import AHEAD, FAIL_TASK, Decode, Reader

__all__ = [
    "SGD",
    "Adagrad",
    "Adam",
    "BeginIteration",
    "BeginPass",
    "Cosine",
    "EndIteration",
    "EndPass",
    "Event",
    "Initial",
    "Job",
    "Linear",
    "Momentum",
    "Nesterov",
    "Normal",
    "Optimiser",
    "Params",
    "Pending",
    "Reader",
    "RegattaError",
    "Schedule",
    "SharedTable",
    "Steps",
    "Uniform",
    "UsageError",
    "WarmUp",
    "Zeros",
    "example",
    "init",
    "reader",
    "train",
]

LossAndGrad = Callable[..., tuple[Any, Mapping[str, NDArray[np.floating[Any]]]]]

_job: Job | None = None


def init() -> Job:
    """Join the job of this process, or start a job that runs alone. Call it once per process.

    Waits until master and parameter servers are registered. Raises UsageError when called again.
    """
    global _job
    if _job is not None:
        raise UsageError(messages.INIT_CALLED_TWICE())
    environment = contract.read()
    if environment.role != contract.TRAINER:
        raise UsageError(messages.INIT_NOT_IN_TRAINER(role=environment.role))
    _job = Job(environment, _job_context(environment))
    return _job


def _job_context(environment: contract.Environment) -> JobContext:
    if environment.alone:
        return Alone(environment)
    channel = Channel.from_environment()
    channel.report_failures()
    try:
        attached = Attached(environment, channel)
    except Lost as lost:
        end_for_restart(str(lost))
    leave_on_sigterm(attached.leave)
    return attached


def reader(
    name: str | None = None,
    batch: int | None = None,
    shuffle: int = 0,
    decode: Decode | None = None,
    on_bad_record: str = FAIL_TASK,
    ahead: int = AHEAD,
) -> Reader:
    """Return ``job.reader`` of this process's job. Calls ``init`` first if it was not called before."""
    return (_job or init()).reader(name, batch, shuffle, decode, on_bad_record, ahead)


def train(
    loss_and_grad: LossAndGrad,
    params: Params,
    *,
    reader: Reader,
    passes: int | None = None,
    event_handler: Callable[[Event], object] | None = None,
) -> None:
    """Run the whole training loop. ``loss_and_grad(params, x, y)`` returns a batch's mean cost and its gradients by
    name.

    ``event_handler`` is called with BeginPass, BeginIteration, EndIteration and EndPass.
    """
    if _job is None:
        raise UsageError(messages.INIT_NOT_CALLED())
    if event_handler is not None:
        _job.on(Event, event_handler)
    for x, y in _job.steps(reader, passes):
        cost, grads = loss_and_grad(params, x, y)
        params.push_pull(grads, n=len(y))
        _job.report(cost=cost)
