"""The attempt of an agent's request, found by one plain query.

Agents make most of the portal's requests. Through the ORM this lookup takes as long as everything else that a heartbeat
does: Django compiles the query for all columns of attempt and job each time.
"""

from __future__ import annotations

import hmac
from uuid import UUID

from django.db import connection

from jobs.models import Attempt, Job
from portal.common.errors import NotFound, NotSignedIn
from rbac.selectors import digest_of


def authentic(attempt_id: UUID, token: str) -> Attempt:
    """Return the attempt if the token is that of its agents, with those columns loaded that every view reads.

    Other columns of attempt and job are loaded when they are read. Raises NotFound, also for a token of another
    attempt, and NotSignedIn.
    """
    attempt = _find(attempt_id)
    digest = digest_of(token)
    if attempt is not None and hmac.compare_digest(attempt.token_digest, digest):
        return attempt
    if attempt is None or Attempt.objects.filter(token_digest=digest).exists():
        raise NotFound("There is no such attempt, or this token belongs to another one.")
    raise NotSignedIn("This token is not the attempt's. An agent gets the right one when it is started.")


def _find(attempt_id: UUID) -> Attempt | None:
    with connection.cursor() as cursor:
        cursor.execute(_SELECT, [Attempt._meta.pk.get_db_prep_value(attempt_id, connection)])
        row = cursor.fetchone()
    if row is None:
        return None
    number, digest, has_finished, job_id, present_number, traceparent = row
    if has_finished:  # rare: the time is converted by the ORM
        return Attempt.objects.select_related("job").filter(pk=attempt_id).first()
    job_id = Job._meta.pk.to_python(job_id)
    attempt = Attempt.from_db(connection.alias, _ATTEMPT_COLUMNS, (attempt_id, job_id, number, digest, None))
    attempt.job = Job.from_db(connection.alias, _JOB_COLUMNS, (job_id, present_number, traceparent))
    return attempt


# Of ``Attempt.from_db`` and ``Job.from_db``.
_ATTEMPT_COLUMNS = ("id", "job_id", "number", "token_digest", "finished")
_JOB_COLUMNS = ("id", "attempt", "traceparent")
_SELECT = f"""
    SELECT a.number, a.token_digest, a.finished IS NOT NULL, j.id, j.attempt, j.traceparent
    FROM {Attempt._meta.db_table} a JOIN {Job._meta.db_table} j ON j.id = a.job_id
    WHERE a.id = %s
"""  # noqa: S608
