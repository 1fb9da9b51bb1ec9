"""System calls that Python has no function for. Linux only; every function raises OSError."""

from __future__ import annotations

import ctypes
import os

_libc = ctypes.CDLL(None, use_errno=True)

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_SECUREBITS = 28
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID = 0x20000, 0x10000000, 0x20000000
CLONE_NEWIPC, CLONE_NEWCGROUP, CLONE_NEWNET = 0x08000000, 0x02000000, 0x40000000

MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REC, MS_PRIVATE = 2, 4, 8, 0x4000, 0x40000
MNT_DETACH = 2
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV, MOUNT_ATTR_IDMAP = 1, 2, 4, 0x100000

CAP_KILL = 5

# These numbers are the same on every architecture.
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_LANDLOCK_CREATE_RULESET, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT_SELF = 444, 445, 446
# This one is not: pivot_root, for which libc has no function.
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}

_OPEN_TREE_CLONE = 1
_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE = -100, 0x1000, 0x8000
_MOVE_MOUNT_F_EMPTY_PATH = 4
_SECCOMP_MODE_FILTER = 2
_LANDLOCK_CREATE_RULESET_VERSION = 1
_LANDLOCK_RULE_PATH_BENEATH = 1
_CAPABILITY_VERSION = 0x20080522
# More than any kernel has. The first unknown one ends the loop.
_CAPABILITIES = 64


class _Ruleset(ctypes.Structure):
    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


class _MountAttributes(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "userns"))


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _CapabilityData(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint32) for name in ("effective", "permitted", "inheritable"))


# --- Properties of a process -----------------------------------------------------------------------------------------
def prctl(option: int, value: int) -> None:
    """Set a property of this process."""
    _checked(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0))


def drop_capabilities(keep: int = 0) -> None:
    """Drop every capability except those whose bits are set in ``keep``."""
    header = _CapabilityHeader(_CAPABILITY_VERSION, 0)
    data = (_CapabilityData * 2)()
    data[0].effective = data[0].permitted = keep
    _checked(_libc.capset(ctypes.byref(header), ctypes.byref(data)))


def drop_bounding_set() -> None:
    """Let no program that this process starts gain a capability. Needs CAP_SETPCAP."""
    for capability in range(_CAPABILITIES):
        if _libc.prctl(PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0) != 0:
            if capability:
                return  # the kernel has no more capabilities
            _checked(-1)


def install_filter(instructions: bytes) -> None:
    """Filter the system calls of this process, and of all that it starts, permanently."""
    program = _Filter(len(instructions) // 8, instructions)
    _checked(_libc.prctl(PR_SET_SECCOMP, ctypes.c_ulong(_SECCOMP_MODE_FILTER), ctypes.byref(program), 0, 0))


# --- Namespaces and mounts -------------------------------------------------------------------------------------------
def unshare(flags: int) -> None:
    """Leave the namespaces in the flags for new ones."""
    _checked(_libc.unshare(flags))


def setns(descriptor: int, kind: int) -> None:
    """Move this process into the namespace of that kind. For a user namespace it must have a single thread."""
    _checked(_libc.setns(descriptor, kind))


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Mount a file system, or change how mounts propagate."""
    _checked(_libc.mount(source.encode(), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), options.encode()))


def clone_tree(path: str) -> int:
    """Return the descriptor of a copy of the tree at the path, with the mounts below it. It is not mounted yet."""
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC | _AT_RECURSIVE
    return _checked(_libc.syscall(_OPEN_TREE, _AT_FDCWD, os.fsencode(path), ctypes.c_uint(flags)))


def attach(tree: int, target: str) -> None:
    """Mount a tree of ``clone_tree``."""
    path, flags = os.fsencode(target), ctypes.c_uint(_MOVE_MOUNT_F_EMPTY_PATH)
    _checked(_libc.syscall(_MOVE_MOUNT, tree, b"", _AT_FDCWD, path, flags))


def restrict_tree(tree: int, attributes: int, userns: int = 0) -> None:
    """Set attributes of a tree and all mounts in it.

    With MOUNT_ATTR_IDMAP, the user namespace maps the owners of its files.
    """
    change = _MountAttributes(attributes, 0, 0, userns)
    flags = ctypes.c_uint(_AT_EMPTY_PATH | _AT_RECURSIVE)
    _checked(_libc.syscall(_MOUNT_SETATTR, tree, b"", flags, ctypes.byref(change), ctypes.sizeof(change)))


def restrict_mount(path: str, attributes: int) -> None:
    """Set attributes of the mount at the path only."""
    change = _MountAttributes(attributes, 0, 0, 0)
    size = ctypes.sizeof(change)
    _checked(_libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, os.fsencode(path), 0, ctypes.byref(change), size))


def enter_root(path: str) -> None:
    """Make the mount at the path the root, and unmount the old one."""
    os.chdir(path)
    _checked(_libc.syscall(_PIVOT_ROOT[os.uname().machine], b".", b"."))
    _checked(_libc.umount2(b".", MNT_DETACH))
    os.chdir("/")


# --- Landlock --------------------------------------------------------------------------------------------------------
def landlock_version() -> int:
    """Return the Landlock version of this kernel, 0 if it has none."""
    return max(0, int(_libc.syscall(_LANDLOCK_CREATE_RULESET, None, 0, _LANDLOCK_CREATE_RULESET_VERSION)))


def landlock_ruleset(files: int, scoped: int) -> int:
    """Create a set of rules for these rights. Return its descriptor."""
    attributes = _Ruleset(files, 0, scoped)
    # Older kernels support only the start of the structure and refuse a longer one unless the rest is zero.
    return _checked(_libc.syscall(_LANDLOCK_CREATE_RULESET, ctypes.byref(attributes), ctypes.sizeof(attributes), 0))


def landlock_allow(ruleset: int, path: int, files: int) -> None:
    """Grant rights on everything below the opened path."""
    rule = _PathBeneath(files, path)
    _checked(_libc.syscall(_LANDLOCK_ADD_RULE, ruleset, _LANDLOCK_RULE_PATH_BENEATH, ctypes.byref(rule), 0))


def landlock_restrict(ruleset: int) -> None:
    """Confine this process, and all that it will start, permanently."""
    _checked(_libc.syscall(_LANDLOCK_RESTRICT_SELF, ruleset, 0))


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
