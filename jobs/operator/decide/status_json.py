"""The status of a PaddleJob as JSON of the resource. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from jobs.operator.decide import replica_status
from jobs.operator.decide.status import Record, current_pods
from jobs.operator.model import names
from jobs.operator.model.conditions import Condition, Kind, Phase, condition, merged, written
from jobs.operator.model.names import Object
from jobs.operator.model.observed import Observed
from jobs.operator.model.spec import PaddleJob, Role


def status_of(job: PaddleJob, observed: Observed, record: Record, now: datetime) -> dict[str, Any]:
    """Return the status to write; equal to the current one if nothing has changed."""
    before = job.status
    pods = current_pods(job, observed, record)
    status: dict[str, Any] = {
        "phase": record.phase.value,
        "mode": job.mode.value,
        "attempt": record.attempt,
        "restarts": record.restarts,
        "observedGeneration": job.generation,
        "selector": f"{names.JOB_LABEL}={job.name},{names.ROLE_LABEL}={names.WORKER}",
        **{role.name: _role_status(role, pods, observed, before, record) for role in job.roles.values()},
        "conditions": merged(before.get("conditions") or [], _conditions(job, record, before), now),
    }
    remembered: dict[str, Any] = {
        "reason": record.reason,
        "message": record.message,
        "releases": record.releases,
        "counted": list(record.counted),
        "startTime": record.start and written(record.start),
        "completionTime": record.completion and written(record.completion),
        "notBefore": record.not_before and written(record.not_before),
        "holdingSince": record.holding_since and written(record.holding_since),
        "progress": dict(record.progress),
        "starts": dict(record.starts),
        "grantedStarts": dict(record.granted),
        "lostSince": dict(record.lost),
    }
    return status | {key: value for key, value in remembered.items() if value}


def _role_status(role: Role, pods: list[Object], observed: Observed, before: Object, record: Record) -> dict[str, Any]:
    of_role = [pod for pod in observed.pods if replica_status.role_of(pod) == role.name]
    status = replica_status.role_status([pod for pod in pods if replica_status.role_of(pod) == role.name], of_role)
    if record.ended:
        # The final counts remain when the pods are deleted.
        was = before.get(role.name) or {}
        status |= {key: max(status[key], int(was.get(key, 0))) for key in ("succeeded", "failed")}
    return status


def _conditions(job: PaddleJob, record: Record, before: Object) -> list[Condition]:
    known = {entry["type"] for entry in before.get("conditions") or ()}
    result = [
        condition(
            Kind.VALID, not job.problems, *(("InvalidSpec", " ".join(job.problems)) if job.problems else ("Read",))
        )
    ]
    if record.suspended:
        result.append(condition(Kind.SUSPENDED, True, "Suspended"))
    elif Kind.SUSPENDED in known:
        result.append(condition(Kind.SUSPENDED, False, "Resumed"))
    if record.phase is Phase.RUNNING or Kind.RUNNING in known:
        result.append(condition(Kind.RUNNING, record.phase is Phase.RUNNING, record.reason or record.phase.value))
    if record.ended:
        kind = Kind.COMPLETED if record.phase is Phase.COMPLETED else Kind.FAILED
        result.append(condition(kind, True, record.reason or record.phase.value, record.message))
    return result
