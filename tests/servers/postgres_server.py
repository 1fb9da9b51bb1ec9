"""Private PostgreSQL for tests: its data in a separate directory, reachable only through a socket in there."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import quote

_DEBIAN = Path("/usr/lib/postgresql")
_USER = "postgres"
# The data need not survive a crash of the machine.
_AUTHENTICATION = ("--auth-local", "trust", "--auth-host", "scram-sha-256")
_QUICK = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "max_connections=300")


def programs() -> Path | None:
    """Return the directory of the server's programs (the newest version), or None if it is not installed."""
    versions = [path for path in _DEBIAN.glob("*/bin") if _is_whole(path)]
    on_path = [Path(path) for path in os.get_exec_path() if _is_whole(Path(path))]
    return max(versions, key=lambda path: float(path.parent.name), default=next(iter(on_path), None))


def _is_whole(directory: Path) -> bool:
    return all((directory / program).exists() for program in ("initdb", "pg_ctl", "createdb"))


class PostgresServer:
    """One server with an empty database ``regatta``. Runs as ``postgres`` if the user is root, which PostgreSQL
    refuses.

    With a port it also listens on the loopback, where accounts need their passwords; on the socket they need none.
    """

    def __init__(self, port: int | None = None) -> None:
        self.port = port or 5432  # also part of the name of the socket
        self._listens = port is not None
        self._directory = Path(tempfile.mkdtemp(prefix="regatta-postgres-"))
        self._user = _USER if os.geteuid() == 0 else None
        if self._user:
            account = pwd.getpwnam(self._user)
            os.chown(self._directory, account.pw_uid, account.pw_gid)

    @property
    def socket_directory(self) -> Path:
        return self._directory

    @property
    def url(self) -> str:
        return f"postgresql://{_USER}@{quote(str(self._directory), safe='')}/regatta"

    def start(self) -> None:
        data = self._directory / "data"
        self._run("initdb", "--pgdata", data, "--username", _USER, *_AUTHENTICATION, "--no-sync", "--encoding", "UTF8")
        address = "127.0.0.1" if self._listens else ""
        settings = (
            f"unix_socket_directories={self._directory}",
            f"listen_addresses={address}",
            f"port={self.port}",
            *_QUICK,
        )
        options = " ".join(f"-c {setting}" for setting in settings)
        self._run("pg_ctl", "--pgdata", data, "--log", self._directory / "log", "--wait", "--options", options, "start")
        self._run("createdb", "--host", self._directory, "--port", str(self.port), "--username", _USER, "regatta")

    def stop(self) -> None:
        self._run("pg_ctl", "--pgdata", self._directory / "data", "--mode", "immediate", "--wait", "stop")
        shutil.rmtree(self._directory)

    def _run(self, program: str, *arguments: str | Path) -> None:
        bin_directory = programs()
        assert bin_directory is not None
        command = [str(bin_directory / program), *map(str, arguments)]
        done = subprocess.run(
            command, user=self._user, cwd=self._directory, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=60
        )
        assert done.returncode == 0, f"{program}: {done.stderr.decode(errors='replace')}"
