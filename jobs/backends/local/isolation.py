"""How jobs are isolated where they run on the portal's own machine, and who may run them where they are not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from django.conf import settings

from jobs.backends.local import cgroups
from runtime.isolation import delegation
from runtime.isolation.delegation import Home
from runtime.isolation.probe import Isolation, Mode, network_problem, probe

NAMESPACES, NONE = "namespaces", "none"
PRIVATE = "private"


class Owner(Protocol):
    """Whose job it is."""

    @property
    def is_admin(self) -> bool: ...


@dataclass(frozen=True)
class Policy:
    """What the local backend does. ``uids``: where each attempt gets one of them, else None. ``disk``: bytes that the
    files of a replica may take up, 0 for any. ``admins_only``: why jobs of others do not run, where they do not.
    ``cgroups``: where replicas get one each, else None. ``network``: one of ``contract.NETWORKS`` if each attempt gets
    a network of its own, else empty."""

    namespaces: bool
    uids: range | None
    disk: int
    admins_only: str = ""
    cgroups: Home | None = None
    network: str = ""


def provided() -> Isolation | None:
    """What this machine provides; None where jobs do not run on it."""
    if settings.CLUSTER_BACKEND != "local":
        return None
    found, groups = _probed(settings.LOCAL_UIDS[0], str(settings.DATA_DIR)), _cgroups()
    layer = groups.home.layer if groups.home is not None else ""
    network = settings.LOCAL_NETWORK == PRIVATE and found.mode is not Mode.NONE
    return replace(found, cgroup=layer, missing=(*found.missing, *groups.missing), network=network)


def policy() -> Policy:
    """What the settings and the machine make of it."""
    disk, home = settings.LOCAL_DISK_BYTES, _cgroups().home
    # Also where the portal should not have started (``start_problem``): replicas without the network do not start.
    network = "user" if settings.LOCAL_NETWORK == PRIVATE else ""
    if settings.LOCAL_ISOLATION == NONE:
        return Policy(False, None, disk, cgroups=home, network=network)
    found = _probed(settings.LOCAL_UIDS[0], str(settings.DATA_DIR))
    if found.mode is Mode.NONE:
        return Policy(False, None, disk, _why_not(found), home, network)
    if found.mode is Mode.UID:
        return Policy(True, settings.LOCAL_UIDS, disk, cgroups=home, network="root" if network else "")
    return Policy(True, None, disk, cgroups=home, network=network)


def refusal(owner: Owner) -> str:
    """Why a job of that owner would not run; empty where it would."""
    if settings.CLUSTER_BACKEND != "local" or owner.is_admin:
        return ""
    return policy().admins_only


def start_problem() -> str:
    """Why the portal must not start: isolation is demanded and cannot be had; empty otherwise."""
    if settings.CLUSTER_BACKEND != "local":
        return ""
    if settings.LOCAL_ISOLATION == NAMESPACES:
        found = _probed(settings.LOCAL_UIDS[0], str(settings.DATA_DIR))
        if found.mode is Mode.NONE:
            how = "; ".join(found.missing)
            return f"REGATTA_LOCAL_ISOLATION is namespaces, but this machine cannot isolate jobs: {how}."
    why = _why_no_network() if settings.LOCAL_NETWORK == PRIVATE else ""
    return f"REGATTA_LOCAL_NETWORK is private, but jobs cannot have networks of their own: {why}." if why else ""


def _why_no_network() -> str:
    if settings.LOCAL_ISOLATION == NONE:
        return "set REGATTA_LOCAL_ISOLATION to auto or namespaces"
    if settings.COORDINATION:
        return "parameter servers would not reach the etcd of REGATTA_COORDINATION; unset it"
    uid, data = settings.LOCAL_UIDS[0], str(settings.DATA_DIR)
    found = _probed(uid, data)
    return "; ".join(found.missing) if found.mode is Mode.NONE else _network_problem(found.mode, uid, data)


def prepare_cgroups() -> str:
    """When the portal starts: make what cgroups of replicas need, and end those that belong to none. What went wrong,
    in words."""
    if settings.CLUSTER_BACKEND != "local":
        return ""
    problem = delegation.prepare(delegation.name_of(settings.DATA_DIR))
    if (home := _cgroups().home) is not None:
        delegation.sweep(home, cgroups.known(Path(settings.ATTEMPTS_DIR)))
    return problem


def remove_cgroups() -> None:
    """When the portal has stopped: remove what no replica uses any more."""
    if settings.CLUSTER_BACKEND == "local" and (home := _cgroups().home) is not None:
        delegation.close(home)


def start_line() -> str:
    """What is said of it when the portal starts; empty where jobs do not run on this machine."""
    found = provided()
    if found is None:
        return ""
    missing = f" Missing: {'; '.join(found.missing)}." if found.missing else ""
    if settings.LOCAL_ISOLATION == NONE:
        return "Jobs are not isolated (REGATTA_LOCAL_ISOLATION=none): every job can reach what the portal can."
    if found.mode is Mode.NONE:
        return f"Jobs are not isolated on this machine: only those of admins run.{missing}"
    return f"Jobs are isolated by: {', '.join(found.layers)}.{missing}"


def _cgroups() -> delegation.Found:
    return delegation.find(delegation.name_of(settings.DATA_DIR))


def _why_not(found: Isolation) -> str:
    return (
        "Jobs are not isolated on this machine, so only platform admins may run them. "
        f"An admin can change that: {'; '.join(found.missing)}."
    )


@lru_cache(maxsize=4)
def _network_problem(mode: Mode, uid: int, data: str) -> str:
    """Once, as ``_probed``."""
    return network_problem(mode, uid, data)


@lru_cache(maxsize=4)
def _probed(uid: int, data: str) -> Isolation:
    """Once in the life of a process: it takes a moment, and a machine seldom changes."""
    return probe(uid, (data,))
