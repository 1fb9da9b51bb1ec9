"""Launcher of a command in isolation. It behaves as the command does.

It ends with the command's exit code or signal and passes a SIGTERM on; killing the launcher kills everything inside.
``start`` gets a descriptor with the order, a marshalled dictionary (``launch_request.Order``).

There are three processes. The launcher is outside. The init is the first process of the PID namespace: it builds the
view, then only collects ended processes; the kernel ends all others with it. The third is the command. Its own data,
above all its environment, reaches neither of the other two. The caller reads from the socket ``report``: descriptors of
the private /dev/shm and of the namespaces, then STARTED, or else why the command could not be started.
"""

from __future__ import annotations

# The modules ``signal`` and ``socket`` import ``enum`` and more, which takes longer than everything else here.
import _signal as signal
import _socket as socket
import errno
import marshal
import os
import resource
import select
import struct
import sys

from runtime.isolation import execution, syscalls
from runtime.isolation.confinement import confine
from runtime.isolation.launch_request import DEVICE, GIVE, NAMESPACES, READ, SHARED_MEMORY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from runtime.isolation.launch_request import Order

STARTED = b"+"
SHARED_MEMORY_OPENED = b"s"
# Separator of a failed call's errno and its message.
REFUSED = "!"
_FAILED = 1
# Files of /proc that no namespace separates: the descriptions of all keys that the job's user may see.
_MASKED = ("/proc/keys", "/proc/key-users")
# A directory that every machine has. The view is built on it, and it then becomes the root.
_BASE = "/tmp"  # noqa: S108


def main(order: Order) -> int:
    report = socket.socket(fileno=order["report"])
    os.set_inheritable(order["report"], False)  # its end signals that the command runs
    # The portal's umask is 077, with which the job's user could not enter the directories of the view.
    os.umask(0o022)
    for number in execution.STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    reading, writing = os.pipe2(os.O_CLOEXEC)
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if order["cgroup"] >= 0:
            # First of all, so that everything that this process starts is in it.
            os.write(order["cgroup"], b"0")
            os.close(order["cgroup"])
        userns = _map_of_owners(order["uid"]) if order["uid"] else 0
        _join_network(order)
        _unshare(order)
        end_with(order["parent"])
    except OSError as error:
        return refuse(report, "isolate the process", error)
    init = os.fork()
    if init == 0:
        os.close(reading)
        _Init(order, report, userns, writing).run()
    os.close(writing)
    report.close()
    forget(order["inherit"])
    status = os.read(reading, 4)
    _, own = os.waitpid(init, 0)
    return _end_as(int.from_bytes(status, "little") if status else own)


def _join_network(order: Order) -> None:
    """Join the network before the process has namespaces of its own.

    The command's namespaces are then below the network's user namespace, and have no control over the network.
    """
    kinds = syscalls.CLONE_NEWUSER, syscalls.CLONE_NEWNET
    for descriptor, kind in zip(order["network"], kinds):  # noqa: B905  two each
        if descriptor >= 0:
            syscalls.setns(descriptor, kind)
            os.close(descriptor)


def _unshare(order: Order) -> None:
    namespaces = syscalls.CLONE_NEWNS | syscalls.CLONE_NEWPID | syscalls.CLONE_NEWIPC
    if order["cgroup"] >= 0:
        namespaces |= syscalls.CLONE_NEWCGROUP  # the cgroup becomes the root of everything that /proc shows
    if order["uid"]:
        syscalls.unshare(namespaces)
        return
    uid, gid = os.geteuid(), os.getegid()
    syscalls.unshare(namespaces | syscalls.CLONE_NEWUSER)
    execution.write("/proc/self/setgroups", "deny")
    execution.write("/proc/self/uid_map", f"{uid} {uid} 1")
    execution.write("/proc/self/gid_map", f"{gid} {gid} 1")


def _map_of_owners(uid: int) -> int:
    """Return the descriptor of a user namespace that maps this user's files to the job's user."""
    reading, writing = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        try:
            syscalls.unshare(syscalls.CLONE_NEWUSER)
            os.write(writing, STARTED)
            signal.pause()
        finally:
            os._exit(_FAILED)
    try:
        os.close(writing)
        if not os.read(reading, 1):
            return 0
        for name, own in (("uid_map", os.geteuid()), ("gid_map", os.getegid())):
            execution.write(f"/proc/{child}/{name}", f"{own} {uid} 1")
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0  # then files keep their owners
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def end_with(parent: int) -> None:
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(_FAILED)


def _end_as(status: int) -> int:
    """Exit as the command did, by the same signal if a signal ended it."""
    if not os.WIFSIGNALED(status):
        return os.waitstatus_to_exitcode(status)
    number = os.WTERMSIG(status)
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    return 128 + number


class _Init:
    """The first process of the PID namespace."""

    def __init__(self, order: Order, report: socket.socket, userns: int, status: int) -> None:
        self._order, self._report, self._userns, self._status = order, report, userns, status

    def run(self) -> NoReturn:
        try:
            syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
            if _is_broken(self._status):
                os._exit(_FAILED)  # the launcher ended before that call
            opened = build(self._order["view"], self._order["shared_memory"], self._userns)
            # The namespaces too: nobody but this process may open them once it is no longer dumpable.
            given = [opened, *(os.open(f"/proc/self/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in NAMESPACES)]
            packed = struct.pack(f"{len(given)}i", *given)
            self._report.sendmsg([SHARED_MEMORY_OPENED], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, packed)])
            for descriptor in given:
                os.close(descriptor)
            # Block stop signals until there is a command that they can be passed on to.
            signal.pthread_sigmask(signal.SIG_BLOCK, execution.STOP_SIGNALS)
            command = os.fork()
            if command == 0:
                _run_command(self._order, self._report)
            self._guard(command)
        except OSError as error:
            os._exit(refuse(self._report, "build what the process may see", error))
        finally:
            os._exit(_FAILED)

    def _guard(self, command: int) -> None:
        """Pass stop signals on, collect all ended processes, and end with the command."""
        for number in execution.STOP_SIGNALS:
            signal.signal(number, lambda number, frame: _pass_on(command, number))
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
        # With an identity of its own, the command is another user's process.
        syscalls.drop_capabilities(1 << syscalls.CAP_KILL if self._order["uid"] else 0)
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
        self._report.close()
        forget(self._order["inherit"])
        while True:
            pid, status = os.waitpid(-1, 0)
            if pid == command:
                os.write(self._status, status.to_bytes(4, "little"))
                os._exit(0)


def _pass_on(command: int, number: int) -> None:
    try:
        os.killpg(command, number)
    except OSError:
        os.kill(command, number)  # it has not created its own group yet


def _is_broken(pipe: int) -> bool:
    poll = select.poll()
    poll.register(pipe, 0)
    return bool(poll.poll(0))


# --- The view --------------------------------------------------------------------------------------------------------
def build(shown: tuple[Any, ...], shared_memory: int, userns: int) -> int:
    """Build the view and make it the root. Return the descriptor of its /dev/shm."""
    trees, links, files = shown
    syscalls.mount("", "/", "", syscalls.MS_REC | syscalls.MS_PRIVATE)
    # All of them before the first mount, which may cover one of them.
    copies = [(_copy(source, use, userns), target) for source, target, use in trees]
    syscalls.mount("tmpfs", _BASE, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, "size=4m,mode=755")
    for path, content in files:
        execution.write(_place(path, directory=False), content)
    for path, target in links:
        os.symlink(target, _parent(path))
    for descriptor, target in copies:
        syscalls.attach(descriptor, _place(target, directory=_is_directory(descriptor)))
        os.close(descriptor)
    options = f"size={shared_memory},mode=1777" if shared_memory else "mode=1777"
    syscalls.mount("tmpfs", _place(SHARED_MEMORY), "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, options)
    syscalls.mount("proc", _place("/proc"), "proc", syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC)
    for path in filter(os.path.exists, _MASKED):
        nothing = _copy("/dev/null", DEVICE, 0)
        syscalls.attach(nothing, _BASE + path)
        os.close(nothing)
    syscalls.enter_root(_BASE)
    syscalls.restrict_mount("/", syscalls.MOUNT_ATTR_RDONLY)
    return os.open(SHARED_MEMORY, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _copy(source: str, use: str, userns: int) -> int:
    """Return the descriptor of a copy of the tree, with the attributes for its use."""
    descriptor = syscalls.clone_tree(source)
    attributes = syscalls.MOUNT_ATTR_NOSUID
    if use != DEVICE:
        attributes |= syscalls.MOUNT_ATTR_NODEV
    if use in (READ, GIVE):
        attributes |= syscalls.MOUNT_ATTR_RDONLY
    syscalls.restrict_tree(descriptor, attributes)
    if use == GIVE and userns:
        try:
            syscalls.restrict_tree(descriptor, syscalls.MOUNT_ATTR_IDMAP, userns)
        except OSError:
            pass  # the file system has no support: its files keep their owners
    return descriptor


def _place(path: str, directory: bool = True) -> str:
    """Return where a path of the view is while it is built. Creates the file or directory to mount on."""
    place = _parent(path)
    if os.path.realpath(place) != os.path.realpath(_BASE) + path:
        raise OSError(errno.ELOOP, "a link is in the way", path)
    if directory:
        os.makedirs(place, 0o755, exist_ok=True)
    elif not os.path.lexists(place):
        os.close(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))
    return place


def _parent(path: str) -> str:
    """Return the place of a path, in an existing directory."""
    place = _BASE + path
    os.makedirs(os.path.dirname(place), 0o755, exist_ok=True)
    return place


def _is_directory(descriptor: int) -> bool:
    return os.path.isdir(f"/proc/self/fd/{descriptor}")


# --- The command -----------------------------------------------------------------------------------------------------
def _run_command(order: Order, report: socket.socket) -> NoReturn:
    step = "confine the process"
    try:
        execution.reset_signals()
        os.setsid()
        execution.write("/proc/self/oom_score_adj", execution.OOM_SCORE)
        for which, soft, hard in order["limits"]:
            resource.setrlimit(which, (soft, hard))
        execution.drop_privileges(order["uid"])
        confine(execution.ruleset(order["writable"], order["gpus"]), alone=True)
        step = "start it"
        os.chdir(order["directory"])
        for descriptor in order["inherit"]:
            os.set_inheritable(descriptor, True)
        report.send(STARTED)
        execution.execute(order["command"], order["environment"])
    except OSError as error:
        os._exit(refuse(report, step, error))
    finally:
        os._exit(_FAILED)


# --- Helpers ---------------------------------------------------------------------------------------------------------
def refuse(report: socket.socket, step: str, error: OSError) -> int:
    text = str(error) if step == "start it" else f"the machine did not {step}: {error}"
    try:
        report.send(f"{error.errno or 0}{REFUSED}{text}".encode("utf-8", "replace"))
    except OSError:
        pass  # the reader of the report is gone
    return _FAILED


def forget(descriptors: list[int]) -> None:
    """Close the command's own descriptors, its output too: a reader waits until no process holds them."""
    nothing = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    for descriptor in (*descriptors, nothing):
        os.close(descriptor)


def start(descriptor: int) -> NoReturn:
    """Carry out the order in the descriptor."""
    with os.fdopen(descriptor, "rb") as file:
        order: Order = marshal.load(file)  # noqa: S302  written by the agent, for this process only
    sys.exit(main(order))
