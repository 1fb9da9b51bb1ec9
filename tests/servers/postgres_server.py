"""Private PostgreSQL for tests: its data in a separate directory, reachable only through a socket in there."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO
from urllib.parse import quote

import psycopg
from psycopg import sql

from tests.waiting import until

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

    def __init__(self, port: int | None = None, parent: Path | None = None) -> None:
        self.port = port or 5432  # also part of the name of the socket
        self._listens = port is not None
        self._directory = Path(tempfile.mkdtemp(prefix="regatta-postgres-", dir=parent))
        self._user = _USER if os.geteuid() == 0 else None
        self._give(self._directory)

    @property
    def socket_directory(self) -> Path:
        return self._directory

    @property
    def url(self) -> str:
        return f"postgresql://{_USER}@{quote(str(self._directory), safe='')}/regatta"

    @property
    def _data(self) -> Path:
        return self._directory / "data"

    def url_with(self, password: str) -> str:
        """Return the URL with a password, which the server does not ask for before ``require_password``."""
        return self.url.replace(f"//{_USER}@", f"//{_USER}:{quote(password, safe='')}@")

    def start(self) -> None:
        self._run(
            "initdb", "--pgdata", self._data, "--username", _USER, *_AUTHENTICATION, "--no-sync", "--encoding", "UTF8"
        )
        self.go_on()
        self._run("createdb", "--host", self._directory, "--port", str(self.port), "--username", _USER, "regatta")

    def go_on(self) -> None:
        """Start the server on the data that it has."""
        address = "127.0.0.1" if self._listens else ""
        settings = (
            f"unix_socket_directories={self._directory}",
            f"listen_addresses={address}",
            f"port={self.port}",
            *_QUICK,
        )
        options = " ".join(f"-c {setting}" for setting in settings)
        log = self._directory / "log"
        self._run("pg_ctl", "--pgdata", self._data, "--log", log, "--wait", "--options", options, "start")

    def shut_down(self, mode: str) -> None:
        """End the server and keep its data: ``fast`` closes connections in order, ``immediate`` is a crash."""
        self._run("pg_ctl", "--pgdata", self._data, "--mode", mode, "--wait", "stop")

    def directory_of_its_own(self, name: str) -> Path:
        """Make a directory in which the server may write."""
        path = self._directory / name
        path.mkdir()
        self._give(path)
        return path

    def base_backup(self, options: Sequence[str]) -> Path:
        """Return a base backup, made with these options of ``pg_basebackup`` that write it to the standard output."""
        path = self._directory / "base.tar"
        with path.open("wb") as output:
            self._run(
                *("pg_basebackup", "--host", self._directory, "--port", str(self.port), "--username", _USER, *options),
                output=output,
            )
        return path

    def replace_data(self, backup: Path) -> None:
        """Put a base backup in place of the data of the stopped server."""
        shutil.rmtree(self._data)
        self._data.mkdir(mode=0o700)
        with tarfile.open(backup) as tar:
            tar.extractall(self._data, filter="fully_trusted")
        for path in (self._data, *self._data.rglob("*")):
            self._give(path)

    def recover(self, settings: str) -> None:
        """Start the server on a base backup: it recovers with these settings."""
        (self._data / "recovery.signal").touch()
        with (self._data / "postgresql.auto.conf").open("a") as file:
            file.write(settings)
        self._give(self._data / "recovery.signal")
        self.go_on()

    def _give(self, path: Path) -> None:
        """Make the account of the server the owner."""
        if self._user:
            account = pwd.getpwnam(self._user)
            os.chown(path, account.pw_uid, account.pw_gid)

    def require_password(self, password: str) -> None:
        """Set the password and ask every new connection for it."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(sql.SQL("ALTER ROLE postgres PASSWORD {}").format(sql.Literal(password)))
        self._admit("scram-sha-256")

    def require_none(self) -> None:
        """Admit everybody again."""
        self._admit("trust")

    def _admit(self, method: str) -> None:
        (self._data / "pg_hba.conf").write_text(f"local all all {method}\n")
        self._run("pg_ctl", "--pgdata", self._data, "reload")
        until("the server has read who may connect", lambda: self._admits_anybody() == (method == "trust"))

    def _admits_anybody(self) -> bool:
        try:
            psycopg.connect(self.url).close()
        except psycopg.OperationalError:
            return False
        return True

    def stop(self) -> None:
        self.shut_down("immediate")
        shutil.rmtree(self._directory)

    def _run(self, program: str, *arguments: str | Path, output: int | IO[bytes] = subprocess.DEVNULL) -> None:
        bin_directory = programs()
        assert bin_directory is not None
        command = [str(bin_directory / program), *map(str, arguments)]
        done = subprocess.run(
            command, user=self._user, cwd=self._directory, stdout=output, stderr=subprocess.PIPE, timeout=60
        )
        assert done.returncode == 0, f"{program}: {done.stderr.decode(errors='replace')}"
