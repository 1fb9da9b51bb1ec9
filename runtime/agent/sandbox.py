"""Files that the job's process may access: Python, the system's libraries, its data, and its own directories.

The list depends on what the backend passed to the agent, never on the job's own variables. Within namespaces the
process sees nothing else. Without them Landlock and the system call filter block access as far as they can.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from runtime.agent.settings import Settings
from runtime.isolation import gpu_devices, landlock, launch_request, view

_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/proc", "/sys/devices/system", view.DEVICE_LIST)
# Files that a view replaces with its own: the names of users and groups.
_ACCOUNTS = ("/etc/passwd", "/etc/group")
# Debian's Python reads its sitecustomize from here, and prints an error if it finds one that it may not read.
_DEBIAN = "python3*"


def visible_tree(settings: Settings, command: Sequence[str]) -> view.View:
    """Return the file system view within namespaces."""
    uid, gid = (settings.run_as, settings.run_as) if settings.run_as else (os.geteuid(), os.getegid())
    own = [str(path) for path in (settings.work, settings.output, settings.home) if path is not None]
    gpus = gpu_devices.files(settings.gpus or ())
    return view.build(uid, gid, _readable(settings, command), own, str(settings.work), str(settings.temporary), gpus)


def rules(settings: Settings, command: Sequence[str]) -> int:
    """Return the rule set of a process without namespaces. Raises landlock.LandlockMissing, and OSError on failure."""
    return landlock.prepare(_grants(settings, command))


def _readable(settings: Settings, command: Sequence[str]) -> list[str]:
    """Return the paths that the backend lets the process read."""
    return [
        *(sys.prefix, sys.base_prefix),
        *_installation(command),
        *_import_path(settings.import_path),
        *settings.data_path,
    ]


def _grants(settings: Settings, command: Sequence[str]) -> Mapping[str, int]:
    kinds = map(str, Path(view.DEVICE_LIST).glob("*/class"))
    readable_paths = (os.path.realpath(path) for path in _readable(settings, command))
    configuration = [*view.configuration(), *_ACCOUNTS, *map(str, Path("/etc").glob(_DEBIAN))]
    readable = dict.fromkeys([*_SYSTEM, *configuration, *kinds, *readable_paths], landlock.READ_ONLY)
    devices = dict.fromkeys(landlock.DEVICES, landlock.DEVICE) | landlock.for_gpus(
        gpu_devices.files(settings.gpus or ())
    )
    written = (settings.work, settings.output, settings.temporary, settings.home)
    own = dict.fromkeys((str(path) for path in written if path is not None), landlock.EVERYTHING)
    return {**readable, **devices, launch_request.SHARED_MEMORY: landlock.SHARE, **own}


def _installation(command: Sequence[str]) -> Iterator[str]:
    """Yield the program's installation and, for a link in a virtual environment, the installation that it leads to."""
    program = Path(command[0])
    for place in (program, program.resolve()):
        # Never the root directory: /bin is granted with the system.
        if place.is_absolute() and place.parent.name == "bin" and place.parent != Path("/bin"):
            yield str(place.parent.parent)


def _import_path(directories: Iterable[str]) -> Iterator[str]:
    """Yield the directories, and the packages to which links in them lead."""
    for directory in directories:
        yield directory
        yield from (str(link) for link in Path(directory).glob("*") if link.is_symlink())
