"""Order for the launcher, and its constants. It imports nothing, because the launcher imports it before every job."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypedDict

    class Order(TypedDict):
        """What the launcher starts, and how.

        ``uid``: the identity to take, 0 for the caller's own in a user namespace. ``view``: trees, links and files as
        in ``view.View``. ``cgroup``: the descriptor for entering it, or -1. ``network``: the descriptors of the user
        namespace and the network namespace to join, or -1.
        """

        parent: int
        command: list[str]
        environment: dict[str, str]
        directory: str
        uid: int
        view: tuple[Any, ...]
        shared_memory: int
        writable: list[str]
        gpus: list[str]
        limits: list[tuple[int, int, int]]
        report: int
        inherit: list[int]
        cgroup: int
        network: tuple[int, int]

    class JoinOrder(TypedDict):
        """What the joiner starts in an isolated replica.

        ``namespaces``: descriptors in the order of NAMESPACES, or empty if the replica has none. ``ruleset``: Landlock
        rules for a replica without namespaces, or -1. ``confined``: whether a replica without namespaces has a system
        call filter. ``terminal``: the standard input is the controlling terminal. ``status``: the pipe for the exit.
        """

        parent: int
        command: list[str]
        environment: dict[str, str]
        directory: str
        uid: int
        writable: list[str]
        gpus: list[str]
        limits: list[tuple[int, int, int]]
        report: int
        status: int
        cgroup: int
        network: tuple[int, int]
        namespaces: list[int]
        ruleset: int
        confined: bool
        terminal: bool


# Uses of a tree: read only; read only and shown as owned by the job's user; writable; a device.
READ, GIVE, WRITE, DEVICE = "read", "give", "write", "device"
TEMPORARY = "/tmp"  # noqa: S108  a directory of the view: the replica's own
SHARED_MEMORY = "/dev/shm"  # noqa: S108  likewise
# Namespaces of an isolated command, in the order in which another process joins them.
NAMESPACES = ("user", "cgroup", "ipc", "mnt", "pid")
