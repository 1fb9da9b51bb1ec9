"""Fencing of a replica's writers by start number.

A node that was cut off may go on with a pod that another one has replaced, so two pods of one replica may send at the
same time. Agents in pods send their start number. Only the start in the replica's row may write: a lower one is
superseded, and a higher one was granted by the cluster and is not adopted yet, so that it has to wait.

The check runs in the transaction of the write, after the lock of the stream. A start takes over by reading its numbers
under the same locks: whatever an earlier start had in progress is stored before, or is refused.
"""

from __future__ import annotations

from django.db import connection

from jobs.messages import jobs as messages
from jobs.models import Attempt, Replica
from portal.common.errors import StaleAttempt, Unavailable

# Seconds after which a start that is not adopted should ask again. The sweep adopts it within about a second.
RETRY_SECONDS = 1.0


class StartNotAdopted(Unavailable):
    """The cluster has granted the start, and the portal has not recorded it yet. A later try is accepted."""

    code = "start_not_adopted"


def check(attempt: Attempt, replica: str, start_number: int | None) -> None:
    """Raise StaleAttempt for a superseded start, and StartNotAdopted for one that the row does not have yet.

    None: the sender does not say which start it is, as agents that share a spool with their earlier starts.
    """
    if start_number is None:
        return
    with connection.cursor() as cursor:
        cursor.execute(_SELECT, [Attempt._meta.pk.get_db_prep_value(attempt.pk, connection), replica])
        found: tuple[int] | None = cursor.fetchone()
    if found is not None:
        compare(attempt, replica, start_number, found[0])


def compare(attempt: Attempt, replica: str, start_number: int, present: int) -> None:
    """Compare a start with the one of the replica's row, ``present``. Raises as ``check`` does."""
    if start_number < present:
        why = messages.START_SUPERSEDED(replica=replica, number=start_number, present=present)
        raise StaleAttempt(why, attempt=attempt.number)
    if start_number > present:
        why = messages.START_NOT_ADOPTED(replica=replica, number=start_number)
        raise StartNotAdopted(why, retry_after=RETRY_SECONDS)


_SELECT = f"SELECT start_number FROM {Replica._meta.db_table} WHERE attempt_id = %s AND name = %s"  # noqa: S608
