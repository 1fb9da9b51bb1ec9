"""The archive of *Download diagnostics*: what an operator sends along with a question about the installation.

It contains no secret, no text of a user, and no name of a person. Every file is redacted once more before it is written
(``portal.system.redaction``). The archive is made while it is sent and has at most ``LIMIT_BYTES``.
"""

from __future__ import annotations

import io
import json
import platform
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from importlib import metadata
from typing import Any

import django
from django.db import DatabaseError, connection, transaction
from django.db.migrations.executor import MigrationExecutor
from django.db.models import Count

from jobs.models import FailedTask, Job, Transition
from portal.common.version import VERSION
from portal.models import ProcessHeartbeat
from portal.system import overview, redaction, settings_report
from portal.system.rules import Entry
from rbac.models import FailedEmail
from runtime.messages import Message

LIMIT_BYTES = 20 * 1024 * 1024
TRANSITIONS, ERRORS = 200, 200
# Measuring the tables of a larger embedded database reads all of it.
MEASURED_BYTES = 2 * 1024**3


def archive(now: datetime, limit: int = LIMIT_BYTES) -> Iterator[bytes]:
    """Yield a zip archive in pieces. Files that would exceed ``limit`` are left out and named in ``left-out.json``."""
    redact = redaction.of_this_process()
    target = _Pieces()
    left_out: list[str] = []
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as file:
        for name, make in FILES.items():
            text = json.dumps(redaction.redacted(_made(make), redact), indent=1, ensure_ascii=False, default=str)
            # A compressed text is not longer than the text.
            if target.length + len(text.encode()) > limit:
                left_out.append(name)
                continue
            file.writestr(zipfile.ZipInfo(name, now.timetuple()[:6]), text, zipfile.ZIP_DEFLATED)
            yield target.take()
        file.writestr(zipfile.ZipInfo("left-out.json", now.timetuple()[:6]), json.dumps(left_out))
    yield target.take()


def _made(make: Callable[[], Any]) -> Any:
    """Return the contents of a file. One that cannot be made contains the class of the error instead: diagnostics are
    for times when something fails."""
    try:
        with transaction.atomic():
            return make()
    except Exception as error:  # noqa: BLE001  any error concerns this file alone
        return {"error": type(error).__name__}


class _Pieces(io.RawIOBase):
    """A file that cannot be read or sought; what is written waits in pieces."""

    def __init__(self) -> None:
        self._waiting = bytearray()
        self.length = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        piece = bytes(data)
        self._waiting += piece
        self.length += len(piece)
        return len(piece)

    def take(self) -> bytes:
        """Return what was written since the last call."""
        piece = bytes(self._waiting)
        self._waiting.clear()
        return piece


# --- The files -------------------------------------------------------------------------------------------------------
def _versions() -> dict[str, str]:
    return {
        "regatta": VERSION,
        "python": sys.version.split()[0],
        "django": django.get_version(),
        "platform": platform.platform(),
        "database": f"{connection.vendor} {'.'.join(map(str, connection.get_database_version()))}",
    }


def _components() -> dict[str, Any]:
    seen = overview.overview()
    return {"at": seen.at.isoformat(), "entries": [_entry(entry) for entry in seen.entries]}


def _entry(entry: Entry) -> dict[str, Any]:
    code = entry.message.code if isinstance(entry.message, Message) else ""
    facts = settings_report.plain(dict(entry.facts))
    if strip := _STRIPPED.get((entry.section, entry.name)):
        return {
            "section": entry.section,
            "name": entry.name,
            "status": entry.status,
            "code": code,
            **strip(entry.facts),
        }
    return {
        "section": entry.section,
        "name": entry.name,
        "status": entry.status,
        "code": code,
        "message": str(entry.message),
        "facts": facts,
    }


def _queue_without_names(facts: Mapping[str, Any]) -> dict[str, Any]:
    oldest = facts.get("oldest")
    job = {"job": oldest["job"], "since": str(oldest["since"]), "why": _code(oldest["why"])} if oldest else None
    return {"facts": {"states": dict(facts["states"]), "oldest": job}}


def _tokens_without_names(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {"facts": {"days": facts["days"], "count": sum(owner["count"] for owner in facts["owners"])}}


# Entries whose message or facts have names of people or texts of users.
_STRIPPED: Mapping[tuple[str, str], Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    ("queue", "jobs"): _queue_without_names,
    ("expiry", "tokens"): _tokens_without_names,
}


def _code(text: str) -> str:
    return text.code if isinstance(text, Message) else ""


def _migrations() -> dict[str, list[str]]:
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    return {
        "applied": sorted(f"{app}.{name}" for app, name in executor.loader.applied_migrations),
        "pending": [f"{migration.app_label}.{migration.name}" for migration, _ in plan],
    }


def _errors() -> dict[str, Any]:
    processes = ProcessHeartbeat.objects.exclude(last_error="").order_by("-last_error_at")[:ERRORS]
    return {
        "processes": list(processes.values("kind", "host", "pid", "last_error", "last_error_at")),
        "tasks": list(FailedTask.objects.order_by("name").values("name", "since", "last", "failures", "error")),
        "emails": list(
            FailedEmail.objects.order_by("-last").values(
                "template", "first", "last", "tries", "error", "next_try", "sent"
            )[:ERRORS]
        ),
    }


def _jobs() -> dict[str, int]:
    return dict(Job.objects.order_by("state").values_list("state").annotate(Count("pk")))


def _transitions() -> list[dict[str, Any]]:
    rows = Transition.objects.order_by("-pk")[:TRANSITIONS]
    return [
        {
            "job": str(row.job_id),
            "attempt": row.attempt,
            "at": row.at.isoformat(),
            "old": row.old,
            "state": row.state,
            "reason": row.reason,
            "why": _code(row.why),
        }
        for row in rows
    ]


def _tables() -> list[dict[str, Any]]:
    """Return the size of each table in bytes, with its indexes."""
    if connection.vendor == "postgresql":
        query = (
            "SELECT c.relname, pg_total_relation_size(c.oid), c.reltuples::bigint FROM pg_class c "
            "JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE c.relkind = 'r' AND n.nspname = current_schema() ORDER BY 2 DESC"
        )
    else:
        query = (
            "SELECT m.tbl_name, SUM(s.pgsize), NULL FROM dbstat s JOIN sqlite_master m ON m.name = s.name "
            "GROUP BY m.tbl_name ORDER BY 2 DESC"
        )
        with connection.cursor() as cursor:
            cursor.execute("SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()")
            if cursor.fetchone()[0] > MEASURED_BYTES:
                raise DatabaseError("too large to measure")
    with connection.cursor() as cursor:
        cursor.execute(query)
        return [{"table": name, "bytes": size, "rows": rows} for name, size, rows in cursor.fetchall()]


def _packages() -> list[str]:
    return sorted({f"{found.metadata['Name']}=={found.version}" for found in metadata.distributions()})


FILES: Mapping[str, Callable[[], Any]] = {
    "versions.json": _versions,
    "settings.json": settings_report.report,
    "components.json": _components,
    "migrations.json": _migrations,
    "errors.json": _errors,
    "jobs.json": _jobs,
    "transitions.json": _transitions,
    "tables.json": _tables,
    "packages.json": _packages,
}
