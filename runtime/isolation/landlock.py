"""Landlock rules on files, signals and abstract sockets, for a process and everything that it starts."""

from __future__ import annotations

import os
import stat

from runtime.isolation import syscalls
from runtime.messages import isolation as messages

TYPE_CHECKING = False
if TYPE_CHECKING:  # the launcher imports this module before every job
    from collections.abc import Mapping, Sequence

_EXECUTE, _WRITE, _READ, _LIST = (1 << bit for bit in range(4))
_REMOVE, _MAKE_FILE = 1 << 5, 1 << 8
_TRUNCATE, _DEVICE_CONTROL = 1 << 14, 1 << 15
# Number of file access rights since each version. A newer kernel gets the rights of the last one.
_RIGHTS = {1: 13, 2: 14, 3: 15, 5: 16}
# Signals and abstract sockets can be confined since version 6.
SCOPES_SINCE = 6
ABSTRACT_SOCKETS, SIGNALS = 1, 2
SCOPES = ABSTRACT_SOCKETS | SIGNALS

READ_ONLY = _EXECUTE | _READ | _LIST
DEVICE = _READ | _WRITE
# Rights on a shared directory: files of random names, which cannot be listed.
SHARE = _READ | _WRITE | _MAKE_FILE | _REMOVE | _TRUNCATE
EVERYTHING = (1 << max(_RIGHTS.values())) - 1
_FILE_RIGHTS = _EXECUTE | _WRITE | _READ | _TRUNCATE | _DEVICE_CONTROL
_GPU = DEVICE | _DEVICE_CONTROL
_OWN_PROCESSES = READ_ONLY | _WRITE | _TRUNCATE

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


class LandlockMissing(Exception):
    """The kernel has no Landlock. The message names the consequences."""


def for_gpus(devices: Sequence[str]) -> dict[str, int]:
    """Return the rights by path that a process needs in order to use GPUs with these device files; none without one.

    CUDA writes the names of its threads in ``/proc`` and does not start if it cannot. The kernel lets a process write
    there only about processes of its own user.
    """
    return {**dict.fromkeys(devices, _GPU), "/proc": _OWN_PROCESSES} if devices else {}


def prepare(grants: Mapping[str, int], scopes: int = SCOPES) -> int:
    """Return the descriptor of a rule set that grants rights below these paths and nothing else.

    ``scopes``: what stays among the processes under these rules, if the kernel supports that. Raises LandlockMissing
    if the kernel has none. Raises OSError if the rules could not be created: the process must not run then.
    """
    version = syscalls.landlock_version()
    if not version:
        raise LandlockMissing(messages.NO_LANDLOCK())
    known = (1 << max(bits for since, bits in _RIGHTS.items() if since <= version)) - 1
    ruleset = syscalls.landlock_ruleset(known, scopes if version >= SCOPES_SINCE else 0)
    try:
        for path, rights in grants.items():
            _allow(ruleset, path, rights & known)
    except OSError:
        os.close(ruleset)
        raise
    return ruleset


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError):
        return  # missing on this machine, or inaccessible to this user
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= _FILE_RIGHTS
        syscalls.landlock_allow(ruleset, descriptor, rights)
    finally:
        os.close(descriptor)
