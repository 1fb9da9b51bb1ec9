"""Joiner of an isolated replica: starts a command with the rights of the replica's own, inside the same namespaces.

``start`` gets a descriptor with the order, a marshalled dictionary (``launch_request.JoinOrder``). There are two
processes. The joiner enters the namespaces, starts the command and writes its wait status to ``status``; a SIGTERM
makes it kill the command's process group. The command is in the PID namespace of the replica and ends with it. It drops
all privileges before it runs, and until then the replica's processes cannot inspect it: it is not dumpable.

The caller reads from the socket ``report``: STARTED, or else why the command could not be started. The command's
standard streams are the joiner's.
"""

from __future__ import annotations

# The modules ``signal`` and ``socket`` import ``enum`` and more, which takes longer than everything else here.
import _signal as signal
import _socket as socket
import fcntl
import marshal
import os
import resource
import sys

from runtime.isolation import execution, landlock, syscalls
from runtime.isolation.confinement import confine
from runtime.isolation.launch_request import NAMESPACES
from runtime.isolation.launcher import STARTED, end_with, forget, refuse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from runtime.isolation.launch_request import JoinOrder

_FAILED = 1
_SET_CONTROLLING_TERMINAL = 0x540E  # TIOCSCTTY
_KINDS = {
    "user": syscalls.CLONE_NEWUSER,
    "cgroup": syscalls.CLONE_NEWCGROUP,
    "ipc": syscalls.CLONE_NEWIPC,
    "mnt": syscalls.CLONE_NEWNS,
    "pid": syscalls.CLONE_NEWPID,
}


def main(order: JoinOrder) -> int:
    report = socket.socket(fileno=order["report"])
    for descriptor in (order["report"], order["status"]):
        os.set_inheritable(descriptor, False)  # their ends are signals to the caller
    for number in execution.STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        execution.write("/proc/self/oom_score_adj", execution.OOM_SCORE)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if order["cgroup"] >= 0:
            os.write(order["cgroup"], b"0")
            os.close(order["cgroup"])
        _join(order)
        # After the change of user namespace, which may reset both.
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
        end_with(order["parent"])
    except OSError as error:
        return refuse(report, "join the replica", error)
    command = os.fork()
    if command == 0:
        _run_command(order, report)
    report.close()
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    # With an identity of its own, the command is another user's process.
    syscalls.drop_capabilities(1 << syscalls.CAP_KILL if order["uid"] else 0)
    forget([])
    signal.signal(signal.SIGTERM, lambda number, frame: _kill(command))
    _, status = os.waitpid(command, 0)
    os.write(order["status"], status.to_bytes(4, "little"))
    return 0


def _kill(command: int) -> None:
    try:
        os.killpg(command, signal.SIGKILL)
    except OSError:
        os._exit(_FAILED)  # it has ended, or has not created its own group yet: it ends with this process


def _join(order: JoinOrder) -> None:
    """Enter the network, and then the other namespaces, which are below it."""
    for descriptor, kind in zip(order["network"], (syscalls.CLONE_NEWUSER, syscalls.CLONE_NEWNET)):  # noqa: B905
        if descriptor >= 0:
            syscalls.setns(descriptor, kind)
            os.close(descriptor)
    # A replica with an identity of its own is in the agent's user namespace, one without a cgroup in its cgroup
    # namespace.
    shared = {"user": order["uid"] != 0, "cgroup": order["cgroup"] < 0}
    for name, descriptor in zip(NAMESPACES, order["namespaces"]):  # noqa: B905  none, if the replica has none
        if not shared.get(name):
            syscalls.setns(descriptor, _KINDS[name])
        os.close(descriptor)


def _run_command(order: JoinOrder, report: socket.socket) -> NoReturn:
    step = "confine the process"
    try:
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        execution.reset_signals()
        os.setsid()
        if order["terminal"]:
            fcntl.ioctl(0, _SET_CONTROLLING_TERMINAL, 0)
        for which, soft, hard in order["limits"]:
            resource.setrlimit(which, (soft, hard))
        _confine(order)
        step = "start it"
        os.chdir(order["directory"])
        report.send(STARTED)
        execution.execute(order["command"], order["environment"])
    except OSError as error:
        os._exit(refuse(report, step, error))
    finally:
        os._exit(_FAILED)


def _confine(order: JoinOrder) -> None:
    if order["namespaces"]:
        execution.drop_privileges(order["uid"])
        # In the PID namespace there are only the replica's own processes to signal.
        confine(execution.ruleset(order["writable"], order["gpus"], landlock.ABSTRACT_SOCKETS), alone=True)
        return
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    if order["confined"]:
        try:
            syscalls.drop_bounding_set()
        except OSError:
            pass  # an ordinary user has no capabilities to drop
        confine(order["ruleset"] if order["ruleset"] >= 0 else None, alone=False)
    if order["ruleset"] >= 0:
        os.close(order["ruleset"])  # it would stay open in the command


def start(descriptor: int) -> NoReturn:
    """Carry out the order in the descriptor."""
    with os.fdopen(descriptor, "rb") as file:
        order: JoinOrder = marshal.load(file)  # noqa: S302  written by the agent, for this process only
    sys.exit(main(order))
