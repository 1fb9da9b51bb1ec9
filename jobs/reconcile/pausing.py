"""Brings about what was requested: paused attempts stand, resumed ones go on. Also for replicas that start again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db import transaction
from django.db.models import F

from jobs.backends.base import AttemptRef
from jobs.frameworks.definitions import TABLE as FRAMEWORKS
from jobs.lifecycle.pauses import Pause
from jobs.lifecycle.states import ENDED, JobState
from jobs.models import Attempt, Job
from jobs.reconcile import effects
from jobs.reconcile.pause_calls import bring_about
from jobs.reconcile.reconciler import reconcile
from runtime import contract

EVERY: Final = timedelta(seconds=3)
_SECONDS: Final = 5.0
# Attempts whose agents are asked at the same time.
_AT_ONCE: Final = 4

_REQUESTS: Final = 8  # that ask agents at the same time, in one process of the portal
_places = threading.BoundedSemaphore(_REQUESTS)

BringAbout = Callable[[AttemptRef, list[str], Pause, float], bool]


class _Task(NamedTuple):
    attempt: UUID
    job: UUID
    ref: AttemptRef
    names: list[str]
    pause: Pause


class PauseWatch:
    """The watch of one sweeping process. Agents are asked in threads of ``pool``; a later pass writes the result."""

    def __init__(self, ask: BringAbout = bring_about, pool: Executor | None = None) -> None:
        self._ask = ask
        self._pool = pool or ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="pauses")
        self._asked: dict[UUID, tuple[_Task, Future[bool]]] = {}
        self._looked: datetime | None = None

    def when_due(self, now: datetime) -> None:
        for attempt, (task, answer) in list(self._asked.items()):
            if answer.done():
                del self._asked[attempt]
                _note(task, answer.result())
        if self._looked is not None and timedelta(0) <= now - self._looked < EVERY:
            return
        self._looked = now
        for task in _tasks():
            if task.attempt not in self._asked and task.names:
                self._asked[task.attempt] = (
                    task,
                    self._pool.submit(self._ask, task.ref, task.names, task.pause, _SECONDS),
                )


def bring_about_now(job: UUID, seconds: float, ask: BringAbout = bring_about) -> None:
    """Ask the agents of one job, outside of any transaction. If many requests do so now, the sweep asks them."""
    if not _places.acquire(blocking=False):
        return
    try:
        for task in _tasks(job__pk=job):
            if task.names:
                _note(task, ask(task.ref, task.names, task.pause, seconds))
    finally:
        _places.release()


def _tasks(**which: Any) -> list[_Task]:
    """Read the attempts that are paused, or are to go on."""
    paused = Attempt.objects.filter(pause__isnull=False, number=F("job__attempt"), job__state=JobState.RUNNING, **which)
    found = []
    for attempt in paused.select_related("job__namespace").prefetch_related("replicas"):
        pause = Pause.from_json(attempt.pause)
        if pause is None or (pause.done and not pause.on):
            continue
        job = attempt.job
        roles = _roles(job.spec["framework"])
        names = [one.name for one in attempt.replicas.all() if one.state not in ENDED and one.role in roles]
        ref = AttemptRef(str(job.pk), str(attempt.pk), attempt.number, job.namespace.name)
        found.append(_Task(attempt.pk, job.pk, ref, names, pause))
    return found


def _roles(framework: str) -> tuple[str, ...]:
    """Return the roles that stop: those that run code of a user, and masters, which stop the clock of their queue."""
    servers = (contract.PSERVER,) if FRAMEWORKS[framework].servers_run_code else ()
    return contract.MASTER, contract.TRAINER, *servers


@transaction.atomic
def _write(task: _Task, done: bool) -> bool:
    """Write whether it is done, unless another request has come since. Return whether that is new."""
    # The job before the attempt, as the reconciler locks them.
    job = Job.objects.select_for_update().filter(pk=task.job).first()
    attempt = Attempt.objects.select_for_update().filter(pk=task.attempt).first()
    if job is None or attempt is None or Pause.from_json(attempt.pause) != task.pause or task.pause.done == done:
        return False
    attempt.pause = {**task.pause.to_json(), "done": done}
    attempt.save(update_fields=["pause"])
    job = Job.objects.select_related("namespace").get(pk=task.job)
    Job.objects.filter(pk=job.pk).update(revision=F("revision") + 1)
    effects.publish(job)
    return True


def _note(task: _Task, done: bool) -> None:
    if _write(task, done):
        reconcile(task.job)
