"""Ended jobs by the hundred thousand: copies of one job that the portal has run to its end, made in PostgreSQL.

Each copy has all rows of the original in all tables: attempt, replicas, transitions, events, closed and sealed streams,
reservation and stored sizes, under ids of its own. The copies ended one after the other, ``APART`` seconds each, so
that retention finds none of them due.
"""

from __future__ import annotations

from typing import Any

APART = 5


def copy(job_id: str, count: int) -> None:
    """Copy an ended job and its rows ``count`` times."""
    from django.db import connection, transaction

    from jobs.models import Attempt, Job
    from quota.models import Kept, Reservation, Stretch

    with transaction.atomic(), connection.cursor() as cursor:
        # The keys of the copies are right by construction; checking each row takes longer than writing it.
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute("SET LOCAL synchronous_commit = off")
        parameters: dict[str, str | int] = {"job": job_id, "count": count}
        cursor.execute(_insert(Job, "t.id = %(job)s", {"id"}), parameters)
        for model in _with_key_to(Job):
            own = {"job_id"} | ({"id"} if model is Attempt else set())
            cursor.execute(_insert(model, "t.job_id = %(job)s", own), parameters)
        of_attempts = "t.attempt_id IN (SELECT id FROM jobs_attempt WHERE job_id = %(job)s)"
        for model in _with_key_to(Attempt):
            cursor.execute(_insert(model, of_attempts, {"attempt_id"}), parameters)
        cursor.execute(_insert(Reservation, "t.job = %(job)s", {"job"}), parameters)
        cursor.execute(_insert(Kept, "t.subject = %(job)s::text", {"subject"}), parameters)
        cursor.execute(_stretches(Reservation._meta.db_table, Stretch._meta.db_table), parameters)
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")


def _with_key_to(model: Any) -> list[Any]:
    """Return the models whose rows belong to one of this model."""
    found = (each for each in model._meta.get_fields(include_hidden=True) if each.one_to_many or each.one_to_one)
    return sorted({each.related_model for each in found if each.auto_created}, key=lambda one: str(one._meta.label))


def _insert(model: Any, of: str, own: set[str]) -> str:
    """Return the statement that copies the rows ``of`` a job; ``own`` are the columns with ids that each copy has."""
    columns = [field for field in model._meta.concrete_fields if not _is_serial(field)]
    names = ", ".join(f'"{field.column}"' for field in columns)
    values = ", ".join(_value(field, field.column in own) for field in columns)
    table = model._meta.db_table
    return f"INSERT INTO {table} ({names}) SELECT {values} FROM {table} t, generate_series(1, %(count)s) n WHERE {of}"


def _is_serial(field: Any) -> bool:
    return str(field.get_internal_type()) in ("BigAutoField", "AutoField")


def _value(field: Any, own: bool) -> str:
    column = f't."{field.column}"'
    if own:
        copied = f"md5({column}::text || n)::uuid"
        return copied if _is_identifier(field) else f"{copied}::text"
    if field.get_internal_type() == "DateTimeField":
        return f"{column} - n * interval '{APART} seconds'"
    return column


def _is_identifier(field: Any) -> bool:
    return str((field.target_field if field.is_relation else field).get_internal_type()) == "UUIDField"


def _stretches(reservations: str, stretches: str) -> str:
    """Return the statement that copies the stretches of the job's reservation to those of its copies."""
    return (
        f"INSERT INTO {stretches} (reservation_id, amounts, begun, ended) "
        f"SELECT copied.id, s.amounts, s.begun - n * interval '{APART} seconds', "
        f"s.ended - n * interval '{APART} seconds' "
        f"FROM {stretches} s JOIN {reservations} original ON s.reservation_id = original.id "
        f"CROSS JOIN generate_series(1, %(count)s) n "
        f"JOIN {reservations} copied ON copied.job = md5(original.job::text || n)::uuid "
        f"WHERE original.job = %(job)s"
    )
