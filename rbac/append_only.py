"""Has the database refuse to change, delete or empty the audit trail, whoever asks. For SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

_SAYS = "The audit trail is append-only."
_TABLE = "rbac_auditentry"


class Connection(Protocol):
    """The part of a database connection that is used here."""

    vendor: str

    def cursor(self) -> object: ...


_GUARD: Mapping[str, Sequence[str]] = {
    "sqlite": (
        f"CREATE TRIGGER trail_is_not_changed BEFORE UPDATE ON {_TABLE} BEGIN SELECT RAISE(ABORT, '{_SAYS}'); END",
        f"CREATE TRIGGER trail_is_not_deleted BEFORE DELETE ON {_TABLE} BEGIN SELECT RAISE(ABORT, '{_SAYS}'); END",
    ),
    "postgresql": (
        f"""CREATE OR REPLACE FUNCTION trail_is_append_only() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION '{_SAYS}'; END $$""",
        f"""CREATE TRIGGER trail_is_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {_TABLE}
            FOR EACH STATEMENT EXECUTE FUNCTION trail_is_append_only()""",
    ),
}
_LIFT: Mapping[str, Sequence[str]] = {
    "sqlite": ("DROP TRIGGER IF EXISTS trail_is_not_changed", "DROP TRIGGER IF EXISTS trail_is_not_deleted"),
    "postgresql": (f"DROP TRIGGER IF EXISTS trail_is_append_only ON {_TABLE}",),
}


def guard(connection: Connection) -> None:
    """From now on rows can only be added."""
    _execute(connection, _GUARD[connection.vendor])


def lift(connection: Connection) -> None:
    """Undo ``guard``: for a migration that changes the table, and for the emptying of a test's database."""
    _execute(connection, _LIFT[connection.vendor])


def _execute(connection: Connection, statements: Sequence[str]) -> None:
    with connection.cursor() as cursor:  # type: ignore[attr-defined]
        for statement in statements:
            cursor.execute(statement)
