"""Looking into the running replicas of a job: stacks, flame graphs, objects in memory. Each look is audited.

The calls to agents take up to the time of a recording, and are made outside of any transaction.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from jobs.backends.base import AttemptRef
from jobs.control import stack_groups
from jobs.control.connection import ControlConnection, connect
from jobs.control.errors import ControlError, NotRunning
from jobs.control.stack_groups import Group, ReplicaStacks
from jobs.lifecycle.states import CHANGEABLE
from jobs.messages import control as messages
from jobs.models import Job
from jobs.selectors.attempts import present_attempt, ref_of
from jobs.selectors.jobs import job_for
from portal.common.errors import Conflict, TooManyRequests, ValidationFailed
from rbac.audit import log as audit_log
from rbac.models import User
from rbac.scopes import Scope
from runtime.contract import ROLES

# Replicas that are asked at the same time; more are left out, the trainers of the highest index first.
REPLICAS = 128
CONNECT_SECONDS, STACKS_SECONDS = 3.0, 4.0
LEAST_SECONDS, USUAL_SECONDS, MOST_SECONDS = 1.0, 10.0, 60.0
_SLACK_SECONDS, _OBJECTS_SECONDS = 6.0, 8.0
# Recordings at a time in one process of the portal: each holds a thread for its length.
RECORDINGS = 4
_RETRY_SECONDS = 10
# Looks at stacks at a time in one process of the portal: each holds a thread for each replica, for seconds.
LOOKS = 8
# Characters of all stacks, and of all types, in the answer of a recording. Each replica has an equal share.
RECORDED_CHARACTERS = 16 * 2**20

_recordings = threading.BoundedSemaphore(RECORDINGS)
_looks = threading.BoundedSemaphore(LOOKS)
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Stacks:
    """``spread_ms``: time between the first and the last question to an agent."""

    attempt: int
    spread_ms: float
    replicas: Sequence[ReplicaStacks]
    groups: Sequence[Group]


@dataclass(frozen=True)
class Recording:
    """``stacks``: counts of folded stacks. ``memory``: processes with objects by type. ``note``: what failed."""

    replica: str
    note: str
    samples: int
    stacks: dict[str, int]
    memory: list[dict[str, Any]]


@dataclass(frozen=True)
class FlameGraph:
    attempt: int
    seconds: float
    replicas: Sequence[Recording]


def take_stacks(*, actor: User, job_id: UUID | str) -> Stacks:
    """Take the stacks of all threads of all running replicas at the same moment.

    Raises NotFound, Forbidden, Conflict if no replica runs, and TooManyRequests.
    """
    job = job_for(actor, job_id, Scope.JOB_WRITE)
    ref, names = running_replicas(job)
    with _place(_looks):
        detail = {"replicas": len(names)}
        audit_log.record("job.stacks", str(job.pk), actor=actor, namespace=job.namespace, detail=detail)
        found, spread = stacks_of(ref, names)
    return Stacks(ref.number, spread, found, stack_groups.grouped(found))


def stacks_of(ref: AttemptRef, names: Sequence[str]) -> tuple[list[ReplicaStacks], float]:
    """Take the stacks of these replicas at the same moment; return also the spread of the questions in ms.

    A replica that cannot be asked has a note and no threads.
    """
    asked: list[float] = []
    together = threading.Barrier(len(names))

    def look(name: str) -> ReplicaStacks:
        try:
            with _connected(ref, name, together) as agent:
                asked.append(time.monotonic())
                return stack_groups.read(name, agent.call("stacks", STACKS_SECONDS))
        except NotRunning as error:
            return ReplicaStacks(name, stack_groups.GONE, str(error))
        except ControlError as error:
            return ReplicaStacks(name, stack_groups.UNRESPONSIVE, str(error))

    found = stack_groups.bounded(all_at_once(look, names))
    spread = (max(asked) - min(asked)) * 1000 if asked else 0.0
    return list(found), round(spread, 1)


@contextlib.contextmanager
def _connected(ref: AttemptRef, name: str, together: threading.Barrier) -> Iterator[ControlConnection]:
    """Connect, and wait until all others have connected too or have failed."""
    try:
        agent = connect(ref, name, CONNECT_SECONDS)
    except ControlError:
        together.abort()
        raise
    # Broken if one agent cannot be reached: the others are asked without it.
    with contextlib.suppress(threading.BrokenBarrierError):
        together.wait(CONNECT_SECONDS)
    with agent:
        yield agent


def record(*, actor: User, job_id: UUID | str, wanted: object) -> FlameGraph:
    """Record where running replicas spend their time, and what fills their memory.

    ``wanted``: ``{"seconds": 10, "replicas": ["trainer-0"] | null}``. Raises NotFound, Forbidden, ValidationFailed,
    Conflict if no replica runs, and TooManyRequests.
    """
    job = job_for(actor, job_id, Scope.JOB_WRITE)
    seconds, chosen = _checked(wanted)
    ref, running = running_replicas(job)
    if unknown := sorted(set(chosen or ()) - set(running)):
        raise ValidationFailed({"replicas": [messages.REPLICA_NOT_OF_JOB(name=unknown[0][:100])]})
    names = [name for name in running if chosen is None or name in chosen]
    with _place(_recordings):
        detail = {"replicas": len(names), "seconds": seconds}
        audit_log.record("job.flamegraph", str(job.pk), actor=actor, namespace=job.namespace, detail=detail)
        share = RECORDED_CHARACTERS // len(names)
        found = all_at_once(lambda name: _record_one(ref, name, seconds, share), names)
    return FlameGraph(ref.number, seconds, found)


@contextlib.contextmanager
def _place(places: threading.BoundedSemaphore) -> Iterator[None]:
    """Take one of the places. Raises TooManyRequests if none is free."""
    if not places.acquire(blocking=False):
        raise TooManyRequests(messages.RECORDINGS_BUSY(seconds=_RETRY_SECONDS), retry_after=_RETRY_SECONDS)
    try:
        yield
    finally:
        places.release()


def looking() -> AbstractContextManager[None]:
    """Take a place for a look that takes seconds. Raises TooManyRequests."""
    return _place(_looks)


def _record_one(ref: AttemptRef, name: str, seconds: float, characters: int) -> Recording:
    try:
        with connect(ref, name, CONNECT_SECONDS) as agent:
            sampled = agent.call("samples", seconds + _SLACK_SECONDS, seconds=seconds)
        taken, stacks = sampled.get("samples"), stack_groups.read_folded(sampled, characters)
        del sampled  # up to a mebibyte of each replica
        with connect(ref, name, CONNECT_SECONDS) as agent:
            memory = stack_groups.read_memory(agent.call("objects", _OBJECTS_SECONDS), characters)
    except ControlError as error:
        return Recording(name, str(error), 0, {}, [])
    return Recording(name, "", taken if isinstance(taken, int) else 0, stacks, memory)


def _checked(wanted: object) -> tuple[float, list[str] | None]:
    asked = wanted if isinstance(wanted, dict) else {}
    seconds, chosen = asked.get("seconds", USUAL_SECONDS), asked.get("replicas")
    errors = {}
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, int | float)
        or not LEAST_SECONDS <= seconds <= MOST_SECONDS
    ):
        least, most = f"{LEAST_SECONDS:g}", f"{MOST_SECONDS:g}"
        errors["seconds"] = [messages.RECORDING_LENGTH_INVALID(least=least, most=most)]
    if chosen is not None and not (isinstance(chosen, list) and chosen and all(isinstance(one, str) for one in chosen)):
        errors["replicas"] = [messages.RECORDING_REPLICAS_INVALID()]
    if errors:
        raise ValidationFailed(errors)
    return float(seconds), chosen


def running_replicas(job: Job) -> tuple[AttemptRef, list[str]]:
    """Return the present attempt and the names of its running replicas. Raises Conflict if there is none."""
    attempt = present_attempt(job)
    if attempt is None or job.state not in CHANGEABLE:
        raise Conflict(messages.NO_RUNNING_REPLICA())
    rows = attempt.replicas.filter(finished=None).exclude(started=None).values_list("role", "index", "name")
    order = {role: position for position, role in enumerate(ROLES)}
    names = [name for _, _, name in sorted(rows, key=lambda row: (order.get(row[0], len(order)), row[1]))]
    if not names:
        raise Conflict(messages.NO_RUNNING_REPLICA())
    return ref_of(job, attempt), names[:REPLICAS]


def all_at_once(ask: Callable[[str], _Result], names: Sequence[str]) -> list[_Result]:
    with ThreadPoolExecutor(max_workers=len(names), thread_name_prefix="inspection") as pool:
        return list(pool.map(ask, names))
