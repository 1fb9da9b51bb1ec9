"""Migration of the database while processes run.

On PostgreSQL a statement that waits for a lock stops all queries of its table behind it, readers too. Such a wait ends
after ``LOCK_SECONDS``; the migration is rolled back and tried again after a pause, in which the queries go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from django.core.management import call_command
from django.db import OperationalError, connection
from django.db.migrations.executor import MigrationExecutor

LOCK_SECONDS = 0.5
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 15.0
# How long a migration is tried before the operator has to end the transaction that is in the way.
LIMIT_SECONDS = 900.0
# SQLSTATE: a lock was not available, a deadlock.
_LOCKED = frozenset({"55P03", "40P01"})
_OLDEST = """
SELECT pid, coalesce(nullif(application_name, ''), usename::text), extract(epoch FROM now() - xact_start)
FROM pg_stat_activity WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid() AND datname = current_database()
ORDER BY xact_start LIMIT 1
"""


class StillLocked(Exception):
    """A lock was not available in all tries. The text names the oldest transaction."""


def migrate(write: Callable[[str], object], sleep: Callable[[float], object] = time.sleep) -> None:
    """Migrate the database if it is not up to date (the command takes its time even when there is nothing to do).

    ``write`` gets a line for each try that failed. Raises StillLocked.
    """
    executor = MigrationExecutor(connection)
    if not executor.migration_plan(executor.loader.graph.leaf_nodes()):
        return
    waited, pause = 0.0, FIRST_PAUSE_SECONDS
    while not _try():
        reason = f"The migration waits for a lock. {_oldest_transaction()}"
        if waited + pause > LIMIT_SECONDS:
            raise StillLocked(f"{reason} End it, then run prepare again.")
        write(f"{reason} The next try is in {pause:g} s.")
        sleep(pause)
        waited, pause = waited + pause, min(2 * pause, LONGEST_PAUSE_SECONDS)


def _try() -> bool:
    """Run the migrations. Return whether no lock was in the way; those that were done stay done."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config('lock_timeout', %s, false)", [f"{LOCK_SECONDS * 1000:.0f}ms"])
    try:
        call_command("migrate", verbosity=0, interactive=False)
    except OperationalError as error:
        if getattr(error.__cause__, "sqlstate", None) in _LOCKED:
            return False
        raise
    finally:
        if connection.vendor == "postgresql" and connection.is_usable():
            with connection.cursor() as cursor:
                cursor.execute("RESET lock_timeout")
    return True


def _oldest_transaction() -> str:
    with connection.cursor() as cursor:
        cursor.execute(_OLDEST)
        row = cursor.fetchone()
    if row is None:
        return "It has ended since."
    pid, name, seconds = row
    return f"The oldest transaction is that of process {pid} of PostgreSQL ({name}); it began {seconds:.0f} s ago."
