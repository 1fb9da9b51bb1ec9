"""Probe of the isolation that this machine provides: a command starts as a job would and reports what it sees."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from runtime.isolation import landlock, launch_request, syscalls, view
from runtime.isolation.launch import Command, NotLaunched, launch
from runtime.isolation.network import join
from runtime.messages import isolation as messages

_SECONDS = 30.0
# Prints what is wrong, or nothing.
_CHECK = """
import os, sys
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
wrong = [name for name, value in (("NoNewPrivs", "1"), ("Seccomp", "2"), ("CapEff", "0" * 16), ("Pid", "2"))
         if status[name].strip() != value]
wrong += [path for path in ("/run", "/home", "/etc/shadow") if os.path.exists(path)]
wrong += ["the user id"] if os.getuid() != int(sys.argv[1]) else []
given = sys.argv[2]
wrong += [os.path.dirname(given)] if os.listdir(os.path.dirname(given)) != [os.path.basename(given)] else []
try:
    open(given + "/private").close()
except OSError as error:
    wrong += [str(error)]
if sys.argv[3]:
    import socket
    wrong += [] if os.readlink("/proc/self/ns/net") == f"net:[{sys.argv[3]}]" else ["the network namespace"]
    with socket.create_server(("127.0.0.1", 0)) as server:
        try:
            socket.create_connection(server.getsockname(), 5).close()
        except OSError as error:
            wrong += ["the loopback device: " + str(error)]
print(*wrong, sep=", ", end="")
"""
# Kernel settings that prevent ordinary users from creating namespaces: the value that does, and what to do.
_HINDRANCES = (
    ("kernel/unprivileged_userns_clone", "0", messages.SET_UNPRIVILEGED_USERNS_CLONE()),
    ("user/max_user_namespaces", "0", messages.SET_MAX_USER_NAMESPACES()),
    (
        "kernel/apparmor_restrict_unprivileged_userns",
        "1",
        messages.ALLOW_USERNS_IN_APPARMOR(),
    ),
)


class Mode(StrEnum):
    """Kind of isolation.

    ``UID``: namespaces, and a user id of its own for each attempt; the portal runs as root. ``USER``: namespaces,
    including a user namespace, under the portal's own user id. ``NONE``: neither.
    """

    UID = "uid"
    USER = "user"
    NONE = "none"


@dataclass(frozen=True)
class Isolation:
    """Isolation that a machine provides. ``missing``: a message for each missing part, with how to get it.

    ``cgroup``: the layer that each replica gets, by name, or empty. ``network``: whether each attempt gets a network
    namespace of its own.
    """

    mode: Mode
    missing: tuple[str, ...] = ()
    landlock: int = 0
    cgroup: str = ""
    network: bool = False

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the layers that isolate a job."""
        if self.mode is Mode.NONE:
            return ("seccomp", *self._where_there_is)
        own = messages.LAYER_USER_ID() if self.mode is Mode.UID else messages.LAYER_USER_NAMESPACE()
        rest = (messages.LAYER_NAMESPACES(), messages.LAYER_FILES(), messages.LAYER_NO_CAPABILITIES(), "seccomp")
        return (own, *rest, *self._where_there_is)

    @property
    def _where_there_is(self) -> tuple[str, ...]:
        named = ((self.landlock, "Landlock"), (self.cgroup, self.cgroup), (self.network, messages.LAYER_NETWORK()))
        return tuple(name for there, name in named if there)


def probe(uid: int, hidden: Sequence[str] = ()) -> Isolation:
    """Try the strongest mode first, then the others.

    ``uid``: a user id that attempts would get. ``hidden``: directories that no job may see.
    """
    version = syscalls.landlock_version()
    weaker = _without_landlock(version)
    for directory in hidden:
        if (tree := _exposing(directory)) is not None:
            what = messages.DATA_DIR_EXPOSED(directory=directory, tree=tree)
            return Isolation(Mode.NONE, (what, *weaker), version)
    missing: list[str] = []
    modes = [(Mode.UID, uid), (Mode.USER, 0)] if os.geteuid() == 0 else [(Mode.USER, 0)]
    for mode, identity in modes:
        problem = _try(identity, hidden[0] if hidden else None)
        if not problem:
            return Isolation(mode, (*missing, *weaker), version)
        missing.append(_explained(mode, problem))
    return Isolation(Mode.NONE, (*missing, *weaker), version)


def network_problem(mode: Mode, uid: int, hidden: str) -> str:
    """Return why an attempt would not get a network of its own in this mode, and what to do; empty if it would.

    ``uid`` and ``hidden`` are as in ``probe``.
    """
    problem = _try(uid if mode is Mode.UID else 0, hidden, networked=True)
    return messages.NETWORK_NAMESPACES_UNAVAILABLE(problem=problem) if problem else ""


def _try(uid: int, hidden: str | None, networked: bool = False) -> str:
    """Run the command with that identity. Return what is wrong, or an empty text.

    The command reads a private file of this user in the directory ``hidden``, whose file system decides whether that
    works, and sees nothing else of the directory.
    """
    with (
        tempfile.TemporaryDirectory(prefix="regatta-probe-") as directory,
        tempfile.TemporaryDirectory(prefix="probe-", dir=hidden or directory) as given,
        tempfile.TemporaryFile() as output,
        contextlib.ExitStack() as stack,
    ):
        private = os.open(f"{given}/private", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.close(private)
        if uid:
            os.chown(directory, uid, uid)
        identity = uid or os.geteuid(), uid or os.getegid()
        shown = view.build(*identity, (sys.prefix, sys.base_prefix, given), (directory,), directory, directory)
        try:
            namespaces, number = (-1, -1), ""
            if networked:
                attempt = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="regatta-probe-")))
                namespaces = stack.enter_context(contextlib.closing(join(attempt, not uid))).namespaces
                number = str(os.fstat(namespaces[1]).st_ino)
            arguments = [sys.executable, "-I", "-S", "-c", _CHECK, str(uid or os.geteuid()), given, number]
            command = Command(arguments, {}, launch_request.TEMPORARY, uid, shown, [directory], network=namespaces)
            launched = launch(command, output.fileno(), output.fileno())
            os.close(launched.shared_memory)
            code = launched.process.wait(_SECONDS)
        except (NotLaunched, OSError) as error:
            return str(error)
        except subprocess.TimeoutExpired:
            launched.process.kill()
            launched.process.wait()
            return messages.COMMAND_TIMED_OUT()
        output.seek(0)
        text = output.read().decode("utf-8", "replace")
        return text or (messages.COMMAND_EXIT_CODE(code=code) if code else "")


def _explained(mode: Mode, problem: str) -> str:
    if mode is Mode.UID:
        how = messages.GRANT_ISOLATION_CAPABILITIES()
        return messages.ROOT_CANNOT_ISOLATE(problem=problem, how=how)
    found = [how for name, value, how in _HINDRANCES if _setting(name) == value]
    how = found[0] if found else messages.ALLOW_USER_NAMESPACES_IN_CONTAINER()
    return messages.USER_NAMESPACES_UNAVAILABLE(problem=problem, how=how)


def _setting(name: str) -> str:
    try:
        return Path("/proc/sys", name).read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _without_landlock(version: int) -> tuple[str, ...]:
    if version >= landlock.SCOPES_SINCE:
        return ()
    return (messages.ABSTRACT_SOCKETS_REACHABLE(),)


def _exposing(directory: str) -> str | None:
    """Return the tree that every job sees and that contains the directory."""
    real = os.path.realpath(directory)
    installations = (os.path.realpath(prefix) for prefix in (sys.prefix, sys.base_prefix))
    inside = next((each for each in installations if Path(real).is_relative_to(each)), None)
    return inside or view.exposed(directory)
