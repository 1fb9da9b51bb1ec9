"""The few system calls that Python has no name for. Linux only."""

from __future__ import annotations

import ctypes
import os

_libc = ctypes.CDLL(None, use_errno=True)

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

# The same numbers on every architecture.
_LANDLOCK_CREATE_RULESET = 444
_LANDLOCK_ADD_RULE = 445
_LANDLOCK_RESTRICT_SELF = 446
_LANDLOCK_CREATE_RULESET_VERSION = 1
_LANDLOCK_RULE_PATH_BENEATH = 1


class _Ruleset(ctypes.Structure):
    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def prctl(option: int, value: int) -> None:
    """Set a property of this process. Raises OSError."""
    if _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def landlock_version() -> int:
    """The version of Landlock that this kernel speaks, 0 where it has none."""
    return max(0, int(_libc.syscall(_LANDLOCK_CREATE_RULESET, None, 0, _LANDLOCK_CREATE_RULESET_VERSION)))


def landlock_ruleset(files: int, scoped: int) -> int:
    """A new set of rules for these rights; the descriptor. Raises OSError."""
    attributes = _Ruleset(files, 0, scoped)
    # Older kernels know only the beginning of the structure and refuse a longer one unless the rest is zero.
    return _checked(_libc.syscall(_LANDLOCK_CREATE_RULESET, ctypes.byref(attributes), ctypes.sizeof(attributes), 0))


def landlock_allow(ruleset: int, path: int, files: int) -> None:
    """Grant rights on what is below the opened path. Raises OSError."""
    rule = _PathBeneath(files, path)
    _checked(_libc.syscall(_LANDLOCK_ADD_RULE, ruleset, _LANDLOCK_RULE_PATH_BENEATH, ctypes.byref(rule), 0))


def landlock_restrict(ruleset: int) -> None:
    """Confine this process, and all that it will start, for good. Raises OSError."""
    _checked(_libc.syscall(_LANDLOCK_RESTRICT_SELF, ruleset, 0))


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
