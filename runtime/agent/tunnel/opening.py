"""Opens a socket to a server in the replica: a Unix socket of its temporary directory, or a port of its loopback.

The directory and the network belong to user code. The name is one component, no link is followed, and what is not a
socket is refused.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

from runtime.isolation import network_sockets
from runtime.isolation.network import Network

SECONDS = 5.0
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HOSTS = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}


def unix_socket(directory: Path, name: str) -> socket.socket:
    """Return a connection to the socket of that name, which matches NAME. Raises OSError."""
    parent = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        place = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    finally:
        os.close(parent)
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if not stat.S_ISSOCK(os.fstat(place).st_mode):
            raise OSError("not a socket")
        # The limit applies to the wait for a place in the queue of a server that accepts nothing.
        link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(SECONDS), 0))
        link.connect(f"/proc/self/fd/{place}")
        link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 0))
    except BaseException:
        link.close()
        raise
    finally:
        os.close(place)
    return link


def tcp_socket(network: Network | None, port: int) -> socket.socket:
    """Return a connection to the port on the loopback of the replica's network. Raises OSError.

    ``network``: that of the attempt, None for a replica in the network of the agent, such as a pod's.
    """
    failure: OSError = ConnectionRefusedError("nothing listens")
    with contextlib.ExitStack() as unused:
        for link in _sockets(network):
            unused.callback(link.close)
            try:
                link.settimeout(SECONDS)
                link.connect((_HOSTS[link.family], port))
                link.settimeout(None)
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except OSError as error:
                failure = error
                continue
            return socket.socket(fileno=link.detach())
    raise failure


def _sockets(network: Network | None) -> Iterator[socket.socket]:
    if network is not None:
        yield from network_sockets.tcp_sockets(network.namespaces)
        return
    for family in _HOSTS:
        with contextlib.suppress(OSError):
            yield socket.socket(family, socket.SOCK_STREAM)
