"""The part of the cgroup tree (version 2) that the portal may use, detected and prepared at its start.

    <cgroup>                                        in which the portal was started
    <cgroup>/portal                                 the portal's own processes, where limits are passed on
    <cgroup>/regatta-<digest of the data directory> the home of all replicas of this portal
    <cgroup>/regatta-<digest>/<replica>             ``cgroup``

Limits of memory and processes reach children only of a cgroup without processes, so the portal first moves from its own
into a leaf. Other processes are never moved: if there are any, the replicas' cgroups have no limits.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from runtime.isolation import cgroup
from runtime.messages import isolation as messages
from runtime.messages.composition import enumerated

LEAF = "portal"
REQUESTED = (cgroup.MEMORY, cgroup.PIDS)
_LIMITED = {cgroup.MEMORY: messages.MEMORY(), cgroup.PIDS: messages.PROCESSES()}
_DELEGATE = messages.DELEGATE_CGROUP()
_CONTROLLERS = messages.DELEGATE_CGROUP_UNIFIED()
_KERNEL_FILES = Path("/proc/self")
# Fields of a line of mountinfo: the mounted part and the mount point. The file system type follows a dash.
_ROOT, _PLACE = 3, 4


@dataclass(frozen=True)
class Observed:
    """State of a cgroup. ``path``: None if there is none.

    ``top``: it is the root of the machine's tree, for which the rule about processes does not hold. ``others``: it
    contains processes that are not the portal's.
    """

    path: Path | None
    writable: bool = False
    top: bool = False
    domain: bool = True
    others: bool = False
    inside: bool = False
    available: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Plan:
    """What can be used of a cgroup. ``place``: the cgroup for the home of replicas; None if none can be used.

    ``move``: the portal first moves into a leaf. ``controllers``: those whose limits replicas get. ``missing``: what is
    not used and how to get it.
    """

    place: Path | None
    move: bool = False
    controllers: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Found:
    """The home of replicas, if there is one, and messages about what is missing."""

    home: Home | None
    missing: tuple[str, ...]


@dataclass(frozen=True)
class Home:
    """Directory of the replicas' cgroups, and the controllers whose limits can be set there."""

    path: Path
    controllers: frozenset[str] = frozenset()

    @property
    def layer(self) -> str:
        return messages.LAYER_CGROUP(limits=_limits(self.controllers)) if self.controllers else "cgroup"


def _limits(controllers: Collection[str]) -> str:
    return enumerated([noun for name, noun in _LIMITED.items() if name in controllers])


def decide(observed: Observed, requested: Collection[str] = REQUESTED) -> Plan:
    """Return what of the cgroup can be used. Pure."""
    if observed.path is None:
        return Plan(None, missing=(messages.CGROUP2_NOT_MOUNTED(),))
    if not observed.writable or not observed.domain:
        return Plan(None, missing=(messages.CGROUP_UNUSABLE(folder=observed.path, how=_DELEGATE),))
    controllers = tuple(name for name in requested if name in observed.available)
    lacking = [name for name in requested if name not in observed.available]
    what = messages.CGROUP_CONTROLLERS_MISSING(what=_limits(lacking), folder=observed.path, how=_CONTROLLERS)
    missing = (what,) if lacking else ()
    if not controllers or observed.top:
        return Plan(observed.path, False, controllers, missing)
    if observed.others:
        what = messages.CGROUP_HAS_OTHER_PROCESSES(what=_limits(requested), folder=observed.path, how=_DELEGATE)
        return Plan(observed.path, missing=(what,))
    return Plan(observed.path, observed.inside, controllers, missing)


def observe(files: Path = _KERNEL_FILES) -> Observed:
    """Read the state of this process's cgroup. ``files``: its directory of /proc."""
    place = _place(files)
    if place is None:
        return Observed(None)
    own = place
    # The portal has moved here, or systemd has started it here with DelegateSubgroup=portal.
    if place.name == LEAF and _is_writable(place.parent):
        place = place.parent
    kind = _read(place / "cgroup.type")
    pids = set(_read(place / "cgroup.procs").split())
    return Observed(
        path=place,
        writable=_is_writable(place),
        top=kind == "",
        domain=kind in ("", "domain"),
        others=bool(pids - {str(os.getpid())}),
        inside=own == place,
        available=frozenset(_read(place / "cgroup.controllers").split()),
    )


def prepare(name: str, requested: Collection[str] = REQUESTED, files: Path = _KERNEL_FILES) -> str:
    """Create the home of that name, pass the available limits on to it, and move into the leaf if needed.

    Returns a message about what failed, or an empty text. ``find`` reports what can be used all the same.
    """
    plan = decide(observe(files), requested)
    if plan.place is None:
        return ""
    home = plan.place / name
    try:
        home.mkdir(exist_ok=True)
        if plan.move:
            (plan.place / LEAF).mkdir(exist_ok=True)
            cgroup.write(plan.place / LEAF / "cgroup.procs", "0")
        for parent in (plan.place, home):
            for controller in plan.controllers:
                cgroup.write(parent / "cgroup.subtree_control", f"+{controller}")
    except OSError as error:
        return messages.CGROUPS_NOT_PREPARED(folder=plan.place, error=error)
    return ""


def find(name: str, requested: Collection[str] = REQUESTED, files: Path = _KERNEL_FILES) -> Found:
    """Return the home of that name, as ``prepare`` has left it, with the limits that can be set in it."""
    plan = decide(observe(files), requested)
    if plan.place is None:
        return Found(None, plan.missing)
    path = plan.place / name
    if not _is_writable(path):
        return Found(None, (messages.CGROUP_NOT_CREATED(folder=path, how=_DELEGATE),))
    if not (path / "cgroup.kill").exists():
        return Found(None, (messages.KERNEL_TOO_OLD_FOR_CGROUPS(),))
    passed_on = frozenset(_read(path / "cgroup.subtree_control").split())
    lost = [name for name in plan.controllers if name not in passed_on]
    what = messages.LIMITS_NOT_PASSED_ON(limits=_limits(lost), path=path, advice=_DELEGATE)
    return Found(Home(path, passed_on), (*plan.missing, *((what,) if lost else ())))


def sweep(home: Home, known: Collection[str]) -> None:
    """End the cgroups in the home that are no longer used: all but those with the known names."""
    for path in home.path.iterdir():
        if path.is_dir() and path.name not in known:
            with contextlib.suppress(OSError):  # it is tried again at the next start
                cgroup.end(path)


def close(home: Home) -> None:
    """Remove the home, unless replicas are still running in it."""
    with contextlib.suppress(OSError):
        home.path.rmdir()


def name_of(data: Path) -> str:
    """Return the name of the home of a portal with that data directory."""
    return f"regatta-{hashlib.sha256(os.fsencode(data.resolve())).hexdigest()[:16]}"


def _place(files: Path) -> Path | None:
    """Return the directory of this process's cgroup, if the file system is mounted and shows it."""
    lines = _read(files / "cgroup").splitlines()
    own = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), None)
    if own is None or ".." in Path(own).parts:
        return None
    for line in _read(files / "mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split()
        root, place = (_unescaped(fields[number]) for number in (_ROOT, _PLACE))
        if after.startswith("cgroup2 ") and Path(own).is_relative_to(root):
            return Path(place) / Path(own).relative_to(root)
    return None


def _unescaped(field: str) -> str:
    """Decode a field of mountinfo, which writes blanks and similar characters as octal numbers."""
    return os.fsdecode(os.fsencode(field).decode("unicode_escape").encode("latin-1")) if "\\" in field else field


def _is_writable(path: Path) -> bool:
    needed = (path, path / "cgroup.procs", path / "cgroup.subtree_control")
    return all(os.access(each, os.W_OK, effective_ids=True) for each in needed)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape").strip()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.EACCES, errno.EOPNOTSUPP, errno.ENODEV):
            raise
        return ""
