"""View of the files that a job's process sees: the system's programs and libraries, the job's own, and nothing else.

A view consists of trees of the machine that are mounted at a path, of links, and of small files that are written for
it. Anything not listed here is absent: no data directory, no ``/run``, no ``/home``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from runtime.isolation import landlock
from runtime.isolation.launch_request import DEVICE, GIVE, READ, TEMPORARY, WRITE

_TEMPORARY_TOO = "/var/tmp"  # noqa: S108  the replica's own too
_PROGRAMS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
# Files of /etc that programs and libraries read; none of them is secret.
_CONFIGURATION = (
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives"),
    *("resolv.conf", "hosts", "host.conf", "nsswitch.conf", "gai.conf", "services", "protocols"),
    *("localtime", "timezone", "mime.types", "fonts", "magic"),
    *("ssl/certs", "ssl/openssl.cnf", "ca-certificates", "pki/tls/certs", "pki/ca-trust/extracted"),
)
# gloo, the transport of PyTorch and PaddlePaddle, reads each device's class, and does not start if that is refused.
DEVICE_LIST = "/sys/bus/pci/devices"
_LINKS = {
    "/dev/fd": "/proc/self/fd",
    "/dev/stdin": "/proc/self/fd/0",
    "/dev/stdout": "/proc/self/fd/1",
    "/dev/stderr": "/proc/self/fd/2",
}


class Tree(NamedTuple):
    """The tree at ``source`` on the machine, shown at ``target``."""

    source: str
    target: str
    use: str


class View(NamedTuple):
    """Trees, links (path and target) and files (path and content) of a view."""

    trees: tuple[Tree, ...]
    links: tuple[tuple[str, str], ...]
    files: tuple[tuple[str, str], ...]


def build(
    uid: int,
    gid: int,
    given: Iterable[str],
    written: Iterable[str],
    work: str,
    temporary: str,
    devices: Iterable[str] = (),
) -> View:
    """Return the view of a process.

    ``given`` are trees that it reads, ``written`` its own directories, each at its usual path. ``temporary`` is shown
    as /tmp as well. ``devices``: device files besides those that every process sees.
    """
    given, written = list(given), [temporary, *written]
    trees = [
        *_system(),
        *(Tree(path, path, DEVICE) for path in (*landlock.DEVICES, *devices) if os.path.exists(path)),
        *(tree for path in given for tree in _there(path, GIVE) if not _is_below(tree.target, _PROGRAMS)),
        *(tree for path in written for tree in _there(path, WRITE)),
        *(Tree(os.path.realpath(temporary), path, WRITE) for path in (TEMPORARY, _TEMPORARY_TOO)),
    ]
    links = [*((path, os.readlink(path)) for path in _PROGRAMS if os.path.islink(path)), *_LINKS.items()]
    targets = [tree.target for tree in trees]
    for path in map(os.path.abspath, (*given, *written)):
        # A path that leads to the tree through links of the machine is a link here, unless it is inside a tree.
        if (real := os.path.realpath(path)) in targets and not _is_below(path, targets):
            links.append((path, real))
    # Parents before the trees that are mounted in them.
    in_order = sorted(dict.fromkeys(trees), key=lambda tree: tree.target.count("/"))
    return View(tuple(in_order), tuple(dict.fromkeys(links)), tuple(_accounts(uid, gid, work)))


def exposed(directory: str) -> str | None:
    """Return the tree of the system that contains the directory and would show it to every job, or None."""
    real = os.path.realpath(directory)
    existing = (tree.source for tree in _system())
    return next((source for source in existing if _is_below(real, (source,))), None)


def configuration() -> Iterator[str]:
    """Yield the existing paths in /etc that a job reads. No directory among them holds keys or passwords."""
    return (path for name in _CONFIGURATION if os.path.exists(path := f"/etc/{name}"))


def _system() -> Iterator[Tree]:
    for path in _PROGRAMS:
        if os.path.isdir(path) and not os.path.islink(path):
            yield Tree(path, path, READ)
    for path in configuration():
        yield Tree(os.path.realpath(path), path, READ)
    for path in ("/sys/devices/system", DEVICE_LIST):
        if os.path.isdir(path):
            yield Tree(path, path, READ)
    yield from _kinds_of_devices()


def _kinds_of_devices() -> Iterator[Tree]:
    if os.path.isdir(DEVICE_LIST):
        for name in os.listdir(DEVICE_LIST):
            kind = os.path.realpath(f"{DEVICE_LIST}/{name}/class")
            if os.path.isfile(kind):
                yield Tree(kind, kind, READ)


def _there(path: str, use: str) -> Iterator[Tree]:
    """Yield the tree to which the path leads, or nothing if it does not exist on the machine."""
    real = os.path.realpath(path)
    if os.path.exists(real):
        yield Tree(real, real, use)


def _is_below(path: str, directories: Iterable[str]) -> bool:
    return any(path == directory or path.startswith(directory.rstrip("/") + "/") for directory in directories)


def _accounts(uid: int, gid: int, work: str) -> Iterator[tuple[str, str]]:
    """Yield the files of user and group names: no account of the machine, and the job's own."""
    own_user = f"job:x:{uid}:{gid}:job:{work}:/bin/sh\n" if uid else ""
    own_group = f"job:x:{gid}:\n" if gid else ""
    root = f"root:x:0:0:root:{work}:/usr/sbin/nologin\n"
    yield "/etc/passwd", f"{root}{own_user}nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
    yield "/etc/group", f"root:x:0:\n{own_group}nogroup:x:65534:\n"
