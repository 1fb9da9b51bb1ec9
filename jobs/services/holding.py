"""Holds of programs at their exception: request, release, variables. Each action is audited.

The calls to agents are made outside of any transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from jobs.backends.base import AttemptRef
from jobs.control import held_frames
from jobs.control.connection import connect
from jobs.control.errors import ControlError, Refused
from jobs.control.held_frames import HeldProgram
from jobs.frameworks.definitions import TABLE as FRAMEWORKS
from jobs.messages import control as control_messages
from jobs.messages import holds as messages
from jobs.models import Job, Replica
from jobs.selectors.jobs import job_for
from jobs.services.inspection import CONNECT_SECONDS, all_at_once, looking, running_replicas
from jobs.terminals.access import may_exec
from portal.common.errors import Conflict, ValidationFailed
from rbac.audit import log as audit_log
from rbac.models import User
from rbac.scopes import Scope
from runtime import contract

USUAL_SECONDS = 900
_CALL_SECONDS, _VARIABLES_SECONDS = 5.0, 10.0


@dataclass(frozen=True)
class Asked:
    """``held``: whether the program of the replica is held now. ``note``: why its agent could not be asked."""

    replica: str
    held: bool
    note: str = ""


@dataclass(frozen=True)
class Variables:
    attempt: int
    replica: str
    program: HeldProgram


def hold(*, actor: User, job_id: UUID | str, wanted: object) -> list[Asked]:
    """Hold the programs of running replicas that end with an exception from now on; 0 seconds: hold none.

    A program that is held already is held for that long from now on. ``wanted``:
    ``{"seconds": 900, "replicas": ["trainer-0"] | null}``. Raises NotFound, Forbidden, ValidationFailed, Conflict
    and TooManyRequests.
    """
    job = job_for(actor, job_id, Scope.JOB_WRITE)
    asked = wanted if isinstance(wanted, dict) else {}
    seconds = asked.get("seconds", USUAL_SECONDS)
    most = contract.HOLD_SECONDS_LIMIT
    if isinstance(seconds, bool) or not isinstance(seconds, int) or not 0 <= seconds <= most:
        raise ValidationFailed({"seconds": [messages.LENGTH_INVALID(most=most)]})
    ref, running = running_replicas(job)
    names = _chosen(asked.get("replicas"), [name for name in running if _runs_user_code(job, name)])
    detail = {"seconds": seconds, "replicas": len(names)}
    audit_log.record("job.hold", str(job.pk), actor=actor, namespace=job.namespace, detail=detail)

    def ask(name: str) -> Asked:
        try:
            with connect(ref, name, CONNECT_SECONDS) as agent:
                return Asked(name, agent.call("hold", _CALL_SECONDS, seconds=seconds).get("held") is True)
        except ControlError as error:
            return Asked(name, False, str(error))

    with looking():
        return all_at_once(ask, names)


def release(*, actor: User, job_id: UUID | str, wanted: object) -> list[Asked]:
    """Let held programs end. ``wanted``: ``{"replicas": ["trainer-0"] | null}``; null: all that are held.

    Raises NotFound, Forbidden, ValidationFailed, and Conflict if none is held.
    """
    job = job_for(actor, job_id, Scope.JOB_WRITE)
    ref, running = running_replicas(job)
    held = set(Replica.objects.filter(attempt=UUID(ref.attempt_id), held__isnull=False).values_list("name", flat=True))
    chosen = wanted.get("replicas") if isinstance(wanted, dict) else None
    names = [name for name in _chosen(chosen, running) if name in held]
    if not names:
        raise Conflict(messages.NOT_HELD())
    detail = {"replicas": len(names)}
    audit_log.record("job.release", str(job.pk), actor=actor, namespace=job.namespace, detail=detail)

    def ask(name: str) -> Asked:
        try:
            with connect(ref, name, CONNECT_SECONDS) as agent:
                agent.call("release", _CALL_SECONDS)
        except ControlError as error:
            return Asked(name, True, str(error))
        return Asked(name, False)

    with looking():
        return all_at_once(ask, names)


def variables(*, actor: User, job_id: UUID | str, wanted: object) -> Variables:
    """Return the frames of a held program with their variables. ``wanted``: ``{"replica": "trainer-0"}``.

    The values are those of user code, so it takes the right to run programs in the replica. Raises NotFound,
    Forbidden, ValidationFailed, and Conflict if the replica is not held or its agent cannot be asked.
    """
    job = may_exec(actor, str(job_id))
    name = wanted.get("replica") if isinstance(wanted, dict) else None
    if not isinstance(name, str):
        raise ValidationFailed({"replica": [messages.REPLICA_REQUIRED()]})
    ref, running = running_replicas(job)
    if name not in running:
        raise ValidationFailed({"replica": [control_messages.REPLICA_NOT_OF_JOB(name=name[:100])]})
    detail = {"replica": name}
    audit_log.record("job.variables", str(job.pk), actor=actor, namespace=job.namespace, detail=detail)
    with looking():
        return Variables(ref.number, name, _variables_of(ref, name))


def _variables_of(ref: AttemptRef, name: str) -> HeldProgram:
    try:
        with connect(ref, name, CONNECT_SECONDS) as agent:
            return held_frames.read(agent.call("variables", _VARIABLES_SECONDS))
    except Refused as error:
        raise Conflict(messages.REPLICA_NOT_HELD(name=name) if error.code == "not_held" else str(error)) from None
    except ControlError as error:
        raise Conflict(str(error)) from None


def _chosen(chosen: object, known: Sequence[str]) -> list[str]:
    """Return the chosen replicas; None: all. Raises ValidationFailed, and Conflict if there are none."""
    if chosen is not None and not (isinstance(chosen, list) and chosen and all(isinstance(one, str) for one in chosen)):
        raise ValidationFailed({"replicas": [control_messages.RECORDING_REPLICAS_INVALID()]})
    if unknown := sorted(set(chosen or ()) - set(known)):
        raise ValidationFailed({"replicas": [control_messages.REPLICA_NOT_OF_JOB(name=unknown[0][:100])]})
    names = [name for name in known if chosen is None or name in chosen]
    if not names:
        raise Conflict(control_messages.NO_RUNNING_REPLICA())
    return names


def _runs_user_code(job: Job, name: str) -> bool:
    role = name.rpartition("-")[0]
    return role == contract.TRAINER or (role == contract.PSERVER and FRAMEWORKS[job.spec["framework"]].servers_run_code)
