"""Servers for a measurement, as installed by Debian: on free ports of the loopback, with data in its folder.

Each raises ``Absent`` if its program is not installed; the rows that need it are then MISSED.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

_START_SECONDS = 30.0
_POSTGRES = "postgres"


class Absent(RuntimeError):
    """A program that a measurement needs is not installed."""


def disk() -> str:
    """Return a folder on a disk, even if temporary files are in memory. BENCH_DISK names another."""
    place = os.environ.get("BENCH_DISK", str(Path.cwd() / "build"))
    Path(place).mkdir(parents=True, exist_ok=True)
    return place


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def program(name: str) -> str:
    """Return the path of a program, including those that only administrators have on their PATH. Raises Absent."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if found is None:
        raise Absent(f"{name} is not installed")
    return found


def wait_until(
    condition: Callable[[], object], what: str, seconds: float = _START_SECONDS, pause: float = 0.05
) -> None:
    """Wait for a condition. Raises RuntimeError after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what} did not happen within {seconds:g} s")
        time.sleep(pause)


def answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


@contextmanager
def running(command: Sequence[str], **options: object) -> Iterator[subprocess.Popen[bytes]]:
    """Provide a running server inside the block."""
    process = subprocess.Popen(command, **options)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def redis(port: int = 0) -> Iterator[str]:
    """Provide the URL of a Redis that keeps everything in memory, as usual for messages."""
    port = port or free_port()
    command = [program("redis-server"), "--port", str(port), "--save", "", "--appendonly", "no", "--bind", "127.0.0.1"]
    with running(command, stdout=subprocess.DEVNULL):
        wait_until(lambda: answers(port), "the start of Redis")
        yield f"redis://127.0.0.1:{port}/0"


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """Provide the URL of an empty database of a PostgreSQL with default settings, which are durable."""
    programs = _programs_of_postgres()
    place = folder / "postgres"
    place.mkdir()
    # It refuses to run as root.
    user = _POSTGRES if os.geteuid() == 0 else None
    if user:
        os.chown(place, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)
        for above in place.parents[:3]:
            with suppress(PermissionError):
                above.chmod(above.stat().st_mode | 0o011)

    def run(name: str, *arguments: str | Path) -> None:
        command = [str(programs / name), *map(str, arguments)]
        done = subprocess.run(
            command, user=user, cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{name}: {done.stderr.decode(errors='replace').strip()}")

    data = place / "data"
    run("initdb", "--pgdata", data, "--username", _POSTGRES, "--auth", "trust", "--encoding", "UTF8")
    options = f"-c unix_socket_directories={place} -c listen_addresses="
    run("pg_ctl", "--pgdata", data, "--log", place / "log", "--wait", "--options", options, "start")
    try:
        run("createdb", "--host", place, "--username", _POSTGRES, "regatta")
        yield f"postgresql://{_POSTGRES}@{quote(str(place), safe='')}/regatta"
    finally:
        run("pg_ctl", "--pgdata", data, "--mode", "fast", "--wait", "stop")


def _programs_of_postgres() -> Path:
    versions = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if (path / "initdb").exists()]
    on_path = [Path(path) for path in os.get_exec_path() if (Path(path) / "initdb").exists()]
    found = max(versions, key=lambda path: float(path.parent.name), default=next(iter(on_path), None))
    if found is None:
        raise Absent("PostgreSQL is not installed")
    return found
