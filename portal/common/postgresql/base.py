"""The backend. Django imports this module by its name.

``POOL_SIZE`` of the database's settings is the maximum of connections of this process; 0 opens one for each request.
Django's own pool (``OPTIONS["pool"]``) opens connections in the background: while the server is away each request waits
for its time limit, the reason is only logged, and after a restart requests fail on one dead connection after another.
"""

from __future__ import annotations

import contextlib
import select
from collections.abc import Mapping
from typing import Any

import psycopg
from django.db.backends.base.base import NO_DB_ALIAS
from django.db.backends.postgresql import base
from psycopg import IsolationLevel
from psycopg.pq import TransactionStatus

from portal.common.monitoring import metrics
from portal.common.postgresql.pool import Pool, PoolFull, close_idle, pool_of

_Connection = psycopg.Connection[Any]
# A pool is for one account in one database of one server.
_IDENTITY = ("host", "port", "dbname", "user", "password")


class DatabaseWrapper(base.DatabaseWrapper):
    """Takes its connection from the pool of the process, and returns it when Django closes it."""

    _from: Pool[_Connection] | None = None

    def get_new_connection(self, conn_params: Mapping[str, Any]) -> _Connection:
        size = int(self.settings_dict.get("POOL_SIZE", 0))
        if not size or self.alias == NO_DB_ALIAS:
            return self._connect(conn_params)
        identity = tuple(conn_params.get(name) for name in _IDENTITY)
        pool = pool_of(identity, lambda: Pool(size, works, _close_quietly))
        self.isolation_level = IsolationLevel.READ_COMMITTED
        try:
            connection: _Connection = pool.take(lambda: self._connect(conn_params))
        except PoolFull as error:
            metrics.DATABASE_POOL_FULL.inc()
            raise psycopg.OperationalError(f"{error} (REGATTA_DATABASE_POOL_SIZE)") from None
        self._from = pool
        return connection

    def _connect(self, conn_params: Mapping[str, Any]) -> _Connection:
        connection: _Connection = super().get_new_connection(conn_params)
        return connection

    def _close(self) -> None:
        pool, self._from = self._from, None
        if pool is None or self.connection is None:
            super()._close()  # type: ignore[misc]  # the stubs lack it
            return
        status = self.connection.info.transaction_status
        pool.give_back(self.connection, is_clean=status == TransactionStatus.IDLE and not self.errors_occurred)

    def close_pool(self) -> None:
        """Close the idle connections of this process: a database with connections can be neither copied nor dropped."""
        super().close_pool()
        close_idle()


def works(connection: _Connection) -> bool:
    """Return whether the server has not closed an idle connection. Sends nothing: a server that closes, or whose
    system has refused keepalives, has made the socket readable."""
    if connection.closed:
        return False
    socket = select.poll()
    socket.register(connection.fileno(), select.POLLIN)
    return not socket.poll(0)


def _close_quietly(connection: _Connection) -> None:
    with contextlib.suppress(psycopg.Error):
        connection.close()
