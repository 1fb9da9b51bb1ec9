"""Private PgBouncer for tests, on a free port of the loopback, before a PostgreSQL of the tests."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import psycopg

from tests.ports import free_port
from tests.servers.postgres_server import USER, PostgresServer
from tests.waiting import until

START_SECONDS = 20.0


class PgBouncer:
    """Shares ``size`` connections to the server, in the pool mode ``session`` or ``transaction``."""

    def __init__(self, server: PostgresServer, mode: str, size: int) -> None:
        self._settings = f"""
[databases]
regatta = host={server.socket_directory} port={server.port} dbname=regatta user={USER}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {(port := free_port())}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
default_pool_size = {size}
"""
        self.url = f"postgresql://{USER}@127.0.0.1:{port}/regatta"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with tempfile.NamedTemporaryFile("w", prefix="regatta-pgbouncer-", suffix=".ini", delete=False) as file:
            file.write(self._settings)
        path = Path(file.name)
        path.chmod(0o644)
        user = USER if os.geteuid() == 0 else None  # it refuses to run as root
        self._process = subprocess.Popen(
            ["pgbouncer", "--quiet", str(path)], user=user, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until("PgBouncer answers", self._is_up, START_SECONDS, every=0.02)
        path.unlink()

    def stop(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def _is_up(self) -> bool:
        try:
            psycopg.connect(self.url).close()
        except psycopg.OperationalError:
            return False
        return True
