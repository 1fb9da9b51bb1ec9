"""What a trainer may see of the machine: Python, the system's libraries, its data, and its own directories.

Landlock needs no privileges and holds for every process that the trainer starts. Signals to processes outside and the
memory and environment of other processes are out of reach as well. Where the kernel lacks it the trainer runs with its
limits alone, and its log says so.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from runtime.agent import kernel
from runtime.agent.settings import Settings

_EXECUTE, _WRITE, _READ, _LIST, _REMOVE_DIRECTORY, _REMOVE = (1 << bit for bit in range(6))
_MAKE_FILE = 1 << 8
_MOVE, _TRUNCATE, _DEVICE_CONTROL = 1 << 13, 1 << 14, 1 << 15
# More than any kernel knows; the first unknown one ends the dropping.
_CAPABILITIES = 64
# Bits of file rights known since each version; a newer kernel is asked for no more than the last.
_RIGHTS = {1: 13, 2: 14, 3: 15, 5: 16}
# Signals and abstract sockets can be confined since version 6.
_SCOPES_SINCE, _SCOPES = 6, 0b11

_LOOK = _EXECUTE | _READ | _LIST
_FILE_RIGHTS = _EXECUTE | _WRITE | _READ | _TRUNCATE | _DEVICE_CONTROL

# gloo, the transport of PyTorch and PaddlePaddle, asks what kind each device is, and starts nothing if it is refused.
_DEVICE_LIST = "/sys/bus/pci/devices"
_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc", "/proc", "/sys/devices/system", _DEVICE_LIST)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
# Locks of multiprocessing live here. The names are random, and the directory cannot be listed.
_SHARED_MEMORY = "/dev/shm"  # noqa: S108


class SandboxMissing(Exception):
    """The kernel cannot confine the process. The sentence says why."""


def prepare(settings: Settings, command: Sequence[str]) -> int:
    """The descriptor of a rule set for ``enter``. Raises SandboxMissing."""
    version = kernel.landlock_version()
    if not version:
        raise SandboxMissing("This kernel has no Landlock: the trainer can read what its user may read.")
    everything = (1 << max(bits for since, bits in _RIGHTS.items() if since <= version)) - 1
    try:
        ruleset = kernel.landlock_ruleset(everything, _SCOPES if version >= _SCOPES_SINCE else 0)
        for path, rights in _grants(settings, command, everything).items():
            _allow(ruleset, path, rights & everything)
    except OSError as error:
        raise SandboxMissing(f"Landlock could not be set up ({error}): the trainer runs without it.") from None
    return ruleset


def enter(ruleset: int) -> None:
    """Confine this process. Called between fork and exec. Raises OSError."""
    # A portal that runs as root starts trainers as root: without capabilities, which would open what Landlock closes.
    with contextlib.suppress(OSError):
        for capability in range(_CAPABILITIES):
            kernel.prctl(kernel.PR_CAPBSET_DROP, capability)
    kernel.landlock_restrict(ruleset)


def _grants(settings: Settings, command: Sequence[str], everything: int) -> Mapping[str, int]:
    python = _with_targets([sys.prefix, sys.base_prefix, *_interpreter(command), *_python_path(settings)])
    kinds = map(str, Path(_DEVICE_LIST).glob("*/class"))
    readable = dict.fromkeys([*_SYSTEM, *kinds, *python, *_with_targets(settings.data_path)], _LOOK)
    devices = dict.fromkeys(_DEVICES, _READ | _WRITE)
    own = dict.fromkeys(map(str, (settings.work, settings.output, settings.temporary)), everything)
    shared = {_SHARED_MEMORY: _READ | _WRITE | _MAKE_FILE | _REMOVE | _TRUNCATE}
    return {**readable, **devices, **shared, **own}


def _interpreter(command: Sequence[str]) -> Iterable[str]:
    """The installation of the program and, where it is a virtual environment's link, the one that it leads to."""
    program = Path(command[0])
    for place in (program, program.resolve()):
        # Never the root: what lies in /bin is granted with the system.
        if place.is_absolute() and place.parent.name == "bin" and place.parent != Path("/bin"):
            yield str(place.parent.parent)


def _python_path(settings: Settings) -> Iterable[str]:
    """The directories of PYTHONPATH, and the packages that they link to."""
    for directory in settings.child_environment.get("PYTHONPATH", "").split(os.pathsep):
        if directory:
            yield directory
            yield from (str(link) for link in Path(directory).glob("*") if link.is_symlink())


def _with_targets(paths: Iterable[str]) -> list[str]:
    return [str(Path(path).resolve()) for path in paths]


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # not on this machine
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= _FILE_RIGHTS
        kernel.landlock_allow(ruleset, descriptor, rights)
    finally:
        os.close(descriptor)
