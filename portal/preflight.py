"""Checks before the portal starts. Each raises CannotStart with one message that says what to do."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from portal.common.redis_client import client_of, without_password
from portal.private_files import repair

LOCK_FILE = "portal.lock"


class CannotStart(Exception):
    """The message is printed to standard error, and the exit code is 1."""


def lock_data_directory(directory: Path) -> IO[str]:
    """Make the data directory, readable by its owner alone, and lock it for this portal until the returned file is
    closed."""
    try:
        repair(directory)
        file = (directory / LOCK_FILE).open("a+", encoding="ascii")
    except OSError as error:
        raise CannotStart(
            f"The data directory {directory} cannot be written: {error.strerror}. "
            "Set REGATTA_DATA_DIR to a directory that you own."
        ) from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise CannotStart(_already_running(file, directory)) from None
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    return file


def _already_running(file: IO[str], directory: Path) -> str:
    file.seek(0)
    holder = file.read().strip()
    process = f" (process {holder})" if holder else ""
    file.close()
    return (
        f"Another portal{process} already runs on the data directory {directory}. "
        "Stop it, or set REGATTA_DATA_DIR to another directory."
    )


def check_redis(addresses: Mapping[str, str]) -> list[str]:
    """Check each Redis, from the names of settings and their values; other values are ignored.

    Raises CannotStart when one refuses its password or the number of its database. Returns a line for each that does
    not answer: the portal works without, and uses it once it answers.
    """
    servers = {name: url for name, url in addresses.items() if url.startswith(("redis://", "rediss://"))}
    if not servers:
        return []
    from redis.exceptions import AuthenticationError, AuthorizationError, RedisError, ResponseError

    lines = []
    for name, url in servers.items():
        server = without_password(url)
        try:
            client_of(url).ping()
        except (AuthenticationError, AuthorizationError, ResponseError) as error:
            why = str(error).rstrip(".")
            raise CannotStart(
                f"Redis at {server} refuses {name}: {why}. Correct the password or the number of the database in it."
            ) from None
        except RedisError as error:
            lines.append(f"Redis at {server} ({name}) does not answer; the portal is slower until it does: {error}")
    return lines


def listen_all(host: str, port: int, agent_port: int) -> list[socket.socket]:
    """Return the listening sockets of the web process: for people, and for agents when they have their own port."""
    first = listen(host, port)
    try:
        return [first, listen(host, agent_port, setting="REGATTA_AGENT_PORT")] if agent_port else [first]
    except CannotStart:
        first.close()
        raise


def listen(host: str, port: int, *, setting: str = "PORT") -> socket.socket:
    """Return a socket that the web process will accept from. It outlasts that process, so that a restart refuses
    nobody."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise CannotStart(f"REGATTA_HOST is {host!r}, which is no address of this machine: {error.strerror}.") from None
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise CannotStart(_cannot_listen(host, port, setting, error)) from None
    return listener


def _cannot_listen(host: str, port: int, setting: str, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"Port {port} on {host} is in use. Stop what uses it, or choose another: {setting}={port + 1}."
    return (
        f"The portal cannot listen on {host}, port {port}: {error.strerror}. Choose another with REGATTA_HOST and "
        f"{setting}."
    )
