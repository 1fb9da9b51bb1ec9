"""Network namespace of one attempt: a loopback device, on which its processes reach each other and nothing else.

A process that belongs to none of the replicas holds the namespace, because replicas start and end independently. It
sends the namespace's descriptors over a socket in the attempt's directory, and ends when the last connection has ended:
agents keep theirs open as long as they run. A socket stays in the namespace in which it was created, so agents stay in
the machine's own.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from runtime.isolation import syscalls

_ROOT = str(Path(__file__).resolve().parent.parent.parent)
_PROGRAM = """import sys; sys.path.insert(0, sys.argv[1])
from runtime.isolation.network import keep; keep(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == 'user')"""
_SOCKET, _LOCK = "network.socket", "network.lock"
_READY = b"+"
# Timeout for the process to become ready, and for its first connection.
_SECONDS = 60.0
_LONGEST_REPORT = 4096
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 0x1
_FLAGS = struct.Struct("16sH14x")


class Network(NamedTuple):
    """Descriptors of a network. ``keeper``: the connection that keeps the namespace alive.

    ``user``: the user namespace that owns it, -1 for the machine's. ``net``: the network namespace.
    """

    keeper: int
    user: int
    net: int

    @property
    def namespaces(self) -> tuple[int, int]:
        """The arguments of ``enter``."""
        return self.user, self.net

    def close(self) -> None:
        """Close the descriptors."""
        for descriptor in self:
            if descriptor >= 0:
                os.close(descriptor)


def join(directory: Path, user: bool) -> Network:
    """Return the network of the attempt with this directory, and create it if there is none.

    ``user``: in a user namespace, for callers without privileges. Raises OSError.
    """
    with (directory / _LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _connect(directory, user) or _make(directory, user)


def enter(namespaces: tuple[int, int]) -> None:
    """Move this process, which has a single thread, into the network. Raises OSError."""
    user, net = namespaces
    if user >= 0:
        syscalls.setns(user, syscalls.CLONE_NEWUSER)
    syscalls.setns(net, syscalls.CLONE_NEWNET)


def is_kept(keeper: int) -> bool:
    """Return whether the process that holds the network is running. Other processes can join only then."""
    try:
        return os.read(keeper, 1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


# --- The caller ------------------------------------------------------------------------------------------------------
def _connect(directory: Path, user: bool) -> Network | None:
    """Connect to the process that holds the network. Return None if there is none."""
    place = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        link.settimeout(_SECONDS)
        link.connect(_address(place))
        found = socket.recv_fds(link, 1, 2)[1]
    except OSError:
        found = []
    finally:
        os.close(place)
    if len(found) != 1 + user:
        link.close()
        for descriptor in found:
            os.close(descriptor)
        return None
    for descriptor in found:
        os.set_inheritable(descriptor, False)
    link.setblocking(False)
    return Network(link.detach(), found[0] if user else -1, found[-1])


def _make(directory: Path, user: bool) -> Network:
    (directory / _SOCKET).unlink(missing_ok=True)
    place = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    reading, writing = os.pipe2(os.O_CLOEXEC)
    try:
        listener.bind(_address(place))
        listener.listen()
        arguments = [str(listener.fileno()), str(writing), "user" if user else "root", str(directory)]
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", "-c", _PROGRAM, _ROOT, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={},
            pass_fds=(listener.fileno(), writing),
            start_new_session=True,
        )
        os.close(writing)
        writing = -1
        report = os.read(reading, _LONGEST_REPORT)
        process.wait()  # the process that holds the network is its child
    finally:
        listener.close()
        for descriptor in (place, reading, writing):
            if descriptor >= 0:
                os.close(descriptor)
    if report == _READY and (network := _connect(directory, user)) is not None:
        return network
    raise OSError(f"the network of the attempt could not be made: {report.decode('utf-8', 'replace') or 'no answer'}")


def _address(directory: int) -> str:
    """Return a short address: the directory's path may be longer than a socket's address may be."""
    return f"/proc/self/fd/{directory}/{_SOCKET}"


# --- The process that holds the namespace ----------------------------------------------------------------------------
def keep(listener: int, report: int, user: bool) -> None:
    """Create the namespace, send it to every connection, and return when it is no longer used.

    The caller's parent waits only for the caller, so this runs in a child.
    """
    if os.fork():
        return
    try:
        given = _namespaces(user)
    except OSError as error:
        os.write(report, str(error).encode())
        return
    os.write(report, _READY)
    os.close(report)
    _serve(socket.socket(fileno=listener), given)


def _namespaces(user: bool) -> list[int]:
    """Create new namespaces for this process, with a loopback device. Return their descriptors."""
    if user:
        uid, gid = os.geteuid(), os.getegid()
        syscalls.unshare(syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWNET)
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            Path("/proc/self", name).write_text(text, encoding="ascii")
    else:
        syscalls.unshare(syscalls.CLONE_NEWNET)
    with socket.socket() as any_socket:
        answer = fcntl.ioctl(any_socket, _GET_FLAGS, _FLAGS.pack(b"lo", 0))
        _, flags = _FLAGS.unpack(answer)
        fcntl.ioctl(any_socket, _SET_FLAGS, _FLAGS.pack(b"lo", flags | _UP))
    names = ("user", "net") if user else ("net",)
    given = [os.open(f"/proc/self/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in names]
    syscalls.drop_capabilities()
    return given


def _serve(listener: socket.socket, given: list[int]) -> None:
    import select

    poll = select.poll()
    poll.register(listener, select.POLLIN)
    links: dict[int, socket.socket] = {}
    while ready := poll.poll(None if links else _SECONDS * 1000):
        for descriptor, _ in ready:
            if descriptor in links:
                poll.unregister(descriptor)
                links.pop(descriptor).close()  # its agent has ended; agents send nothing
                continue
            link, _peer = listener.accept()
            try:
                socket.send_fds(link, [_READY], given)
            except OSError:
                link.close()
                continue
            links[link.fileno()] = link
            poll.register(link, select.POLLIN)
        if not links:
            return
