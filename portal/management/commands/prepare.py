"""``manage.py prepare``: preparation before the portal's processes start, where ``manage.py up`` does not run them.

Idempotent; several may run at once.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError, connection
from django.db.backends.base.base import BaseDatabaseWrapper

from jobs.launch import coordination_accounts
from portal.management.commands.up import ensure_admin, redis_settings
from portal.operations.database_wait import wait_for_database
from portal.operations.migrating import StillLocked, migrate
from portal.preflight import CannotStart, check_redis
from portal.private_files import repair
from runtime.coordination.base import CoordinationError
from runtime.coordination.etcd_probe import PATCHED

_LOCK = 0x5E6A77A  # an arbitrary number of the portal's own
_LOCK_PAUSE_SECONDS = 0.5
# A pooler may by chance use two sessions for two connections.
_LOOKS = 10


class Command(BaseCommand):
    help = "Bring the database up to date, open the account admin at the first start, and have etcd ask for accounts."
    requires_system_checks = ()

    def handle(self, *args: Any, **options: Any) -> None:
        repair(settings.DATA_DIR)
        try:
            for line in check_redis(redis_settings()):
                self.stdout.write(line)
        except CannotStart as reason:
            raise CommandError(str(reason)) from None
        if settings.PREPARE_DATABASE:
            connection.settings_dict.update(settings.PREPARE_DATABASE)
        try:
            wait_for_database(connection.ensure_connection, self.stderr.write)
        except OperationalError as error:
            raise CommandError(f"The database does not answer: {error}") from None
        _check_session()
        with _alone():
            try:
                migrate(self.stderr.write)
            except StillLocked as error:
                raise CommandError(str(error)) from None
            ensure_admin()
            try:
                guarded = coordination_accounts.guard()
            except CoordinationError as error:
                raise CommandError(str(error)) from None
            self._check_etcd()
        database = settings.DATABASES["default"]["ENGINE"].rpartition(".")[2]
        self.stdout.write(
            f"The {database} database is up to date." + (" etcd asks for accounts now." if guarded else "")
        )

    def _check_etcd(self) -> None:
        """Warn of an etcd that obeys callers without an account. Raises CommandError if pods of jobs reach it."""
        found = coordination_accounts.unpatched()
        if not found:
            return
        servers = ", ".join(f"{server} (version {version})" for server, version in sorted(found.items()))
        message = (
            f"etcd answers callers without an account: {servers}. A job that reaches it can stop the coordination of "
            f"all jobs. Install etcd {PATCHED}."
        )
        if settings.CLUSTER_BACKEND == "kubernetes" and not settings.COORDINATION_JOBS:
            raise CommandError(f"{message} Or set REGATTA_COORDINATION_JOBS: jobs then reach the gateway only.")
        self.stderr.write(self.style.WARNING(f"WARNING: {message}"))


def _check_session() -> None:
    """Raises CommandError if a pooler gives successive statements of this connection to different sessions: the lock of
    ``prepare`` and its limit for locks are those of a session."""
    if connection.vendor != "postgresql":
        return
    other = connection.copy()
    try:
        is_shared = any(_session(connection) == _session(other) for _ in range(_LOOKS))
    finally:
        other.close()
    if is_shared:
        raise CommandError(
            "REGATTA_DATABASE_URL is the address of a pooler in transaction mode. Set REGATTA_DATABASE_PREPARE_URL to "
            "the address of PostgreSQL itself, or use the pooler's session mode."
        )


def _session(wrapper: BaseDatabaseWrapper) -> int:
    """Return the process of PostgreSQL that answers."""
    with wrapper.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Exclude other ``prepare`` commands. The embedded database has a lock of its own.

    The lock is tried again and again: a statement that waited for it would have a snapshot, and an index that the other
    command builds concurrently waits for all of those.
    """
    if connection.vendor != "postgresql":
        yield
        return
    with connection.cursor() as cursor:
        while not _locks(cursor):
            time.sleep(_LOCK_PAUSE_SECONDS)
        try:
            yield
        finally:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [_LOCK])


def _locks(cursor: Any) -> bool:
    cursor.execute("SELECT pg_try_advisory_lock(%s)", [_LOCK])
    return bool(cursor.fetchone()[0])
