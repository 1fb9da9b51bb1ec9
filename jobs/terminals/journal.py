"""Rows in the audit log: who opened a terminal or ran a command in which replica, and when that ended.

Neither input nor output is in them.
"""

from __future__ import annotations

from dataclasses import dataclass

from jobs.terminals.access import Target
from rbac.audit import log as audit_log
from rbac.audit.context import AuditContext
from rbac.models import User

# The actions, without and with a command.
_ACTIONS = {False: "terminal", True: "exec"}


@dataclass(frozen=True)
class Visit:
    """One connection of a person to a replica."""

    user: User
    target: Target
    command: bool
    context: AuditContext


def opened(visit: Visit) -> None:
    """Record the start."""
    _record(visit, "open", {})


def closed(visit: Visit, seconds: float, shown: int, code: int | None) -> None:
    """Record the end, with the bytes of output, and the exit code of a program that has ended."""
    _record(visit, "close", {"seconds": round(seconds, 1), "bytes": shown, "exit_code": code})


def connected(user: User, target: Target, port: int, context: AuditContext) -> None:
    """Record a connection to a port in the replica."""
    audit_log.record(
        "port.open",
        f"{target.job.pk} {target.replica}",
        actor=user,
        namespace=target.job.namespace,
        detail={"job": target.job.name, "replica": target.replica, "port": port},
        context=context,
    )


def _record(visit: Visit, verb: str, detail: dict[str, float | int | None]) -> None:
    target = visit.target
    recorded = target.recorded and not visit.command  # commands are not recorded
    audit_log.record(
        f"{_ACTIONS[visit.command]}.{verb}",
        f"{target.job.pk} {target.replica}",
        actor=visit.user,
        namespace=target.job.namespace,
        detail={"job": target.job.name, "replica": target.replica, "recorded": recorded, **detail},
        context=visit.context,
    )
