"""Database triggers that make the audit log append-only for every client. For SQLite and PostgreSQL.

Rows are added. A row of the last ``LEAST_DAYS`` days is neither deleted nor replaced; an older one may be deleted, as
``rbac.retention`` does. No row is ever updated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

LEAST_DAYS = 365
_REFUSAL = "The audit trail is append-only."
_TABLE = "rbac_auditentry"


class Connection(Protocol):
    """The part of a database connection that this module uses."""

    vendor: str

    def cursor(self) -> object: ...


# Django stores timestamps in SQLite as texts in UTC that sort by time.
_SQLITE_FLOOR = f"strftime('%Y-%m-%d %H:%M:%f', 'now', '-{LEAST_DAYS} days')"
_GUARD: Mapping[str, Sequence[str]] = {
    "sqlite": (
        f"CREATE TRIGGER trail_is_not_changed BEFORE UPDATE ON {_TABLE} BEGIN SELECT RAISE(ABORT, '{_REFUSAL}'); END",
        f"""CREATE TRIGGER trail_is_not_deleted BEFORE DELETE ON {_TABLE} WHEN OLD.at >= {_SQLITE_FLOOR}
            BEGIN SELECT RAISE(ABORT, '{_REFUSAL}'); END""",
        # INSERT OR REPLACE deletes the old row without firing the trigger above.
        f"""CREATE TRIGGER trail_is_not_replaced BEFORE INSERT ON {_TABLE}
            WHEN EXISTS (SELECT 1 FROM {_TABLE} WHERE id = NEW.id) BEGIN SELECT RAISE(ABORT, '{_REFUSAL}'); END""",  # noqa: S608  no input
    ),
    "postgresql": (
        f"""CREATE OR REPLACE FUNCTION trail_is_append_only() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION '{_REFUSAL}'; END $$""",
        f"""CREATE TRIGGER trail_is_append_only BEFORE UPDATE OR TRUNCATE ON {_TABLE}
            FOR EACH STATEMENT EXECUTE FUNCTION trail_is_append_only()""",
        f"""CREATE TRIGGER trail_is_not_deleted BEFORE DELETE ON {_TABLE} FOR EACH ROW
            WHEN (OLD.at >= now() - interval '{LEAST_DAYS} days') EXECUTE FUNCTION trail_is_append_only()""",
    ),
}
_LIFT: Mapping[str, Sequence[str]] = {
    "sqlite": tuple(f"DROP TRIGGER IF EXISTS trail_is_not_{what}" for what in ("changed", "deleted", "replaced")),
    "postgresql": tuple(
        f"DROP TRIGGER IF EXISTS {name} ON {_TABLE}" for name in ("trail_is_append_only", "trail_is_not_deleted")
    ),
}


def guard(connection: Connection) -> None:
    """Install the triggers."""
    _execute(connection, _GUARD[connection.vendor])


def lift(connection: Connection) -> None:
    """Remove the triggers: for a migration that changes the table, and for emptying a test's database."""
    _execute(connection, _LIFT[connection.vendor])


def _execute(connection: Connection, statements: Sequence[str]) -> None:
    with connection.cursor() as cursor:  # type: ignore[attr-defined]
        for statement in statements:
            cursor.execute(statement)
