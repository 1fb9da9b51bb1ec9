"""Sockets inside a network namespace, for a process that stays outside of it.

A process with several threads cannot enter a user namespace. A process of its own enters the namespaces, creates the
sockets, and sends them to the caller. A socket stays in the network in which it was created.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys

from runtime.isolation import network, syscalls
from runtime.isolation.launch import ROOT

_PROGRAM = """import sys; sys.path.insert(0, sys.argv[1])
from runtime.isolation.network_sockets import create; create(*map(int, sys.argv[2:]))"""
_FAMILIES = (socket.AF_INET, socket.AF_INET6)
_SECONDS = 10.0


def tcp_sockets(namespaces: tuple[int, int]) -> list[socket.socket]:
    """Return an unconnected socket for IPv4 and one for IPv6, in the network ``Network.namespaces``.

    Raises OSError if the network cannot be entered. Safe while other threads run.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs:
        user, net = namespaces
        given = (theirs.fileno(), *(number for number in namespaces if number >= 0))
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", "-c", _PROGRAM, ROOT, str(theirs.fileno()), str(user), str(net)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={},
            pass_fds=given,
        )
        theirs.close()
        ours.settimeout(_SECONDS)
        try:
            _, found, _, _ = socket.recv_fds(ours, 1, len(_FAMILIES))
        except OSError:
            process.kill()
            raise
        finally:
            # The agent collects its ended children in one place; this object must not wait for it as well.
            process.returncode = 0
    if not found:
        raise OSError("the network of the replica could not be entered")
    for descriptor in found:
        os.set_inheritable(descriptor, False)
    return [socket.socket(fileno=descriptor) for descriptor in found]


def create(link: int, user: int, net: int) -> None:
    """Enter the namespaces, and send the sockets over ``link``. In a process of its own."""
    network.enter((user, net))
    # After the change of user namespace, which resets it: processes of that namespace cannot inspect this one.
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
    made = []
    for family in _FAMILIES:
        try:
            made.append(socket.socket(family, socket.SOCK_STREAM))
        except OSError:
            pass  # a machine without IPv6
    with socket.socket(fileno=link) as caller:
        socket.send_fds(caller, [b"+"], [each.fileno() for each in made])
