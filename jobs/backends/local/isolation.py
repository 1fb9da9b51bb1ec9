"""Isolation of jobs on the portal's own machine, and the permission to run jobs where there is none."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from django.conf import settings

from jobs.backends.local import cgroups
from jobs.messages import cluster as messages
from runtime.isolation import delegation
from runtime.isolation.delegation import Home
from runtime.isolation.probe import Isolation, Mode, network_problem, probe
from runtime.messages.composition import clauses

NAMESPACES, NONE = "namespaces", "none"
PRIVATE = "private"


class Owner(Protocol):
    """Owner of a job."""

    @property
    def is_admin(self) -> bool: ...


@dataclass(frozen=True)
class Policy:
    """Isolation that the local backend applies.

    ``namespaces``: whether replicas run in Linux namespaces. ``uids``: the range from which each attempt gets a user
    id; None: no separate ids. ``disk``: maximum bytes of a replica's files; 0: no limit. ``admins_only``: why only
    admins may run jobs; empty if everyone may. ``cgroups``: the parent of the replicas' cgroups; None: no cgroups.
    ``network``: one of ``contract.NETWORKS`` if each attempt gets a network of its own, else empty.
    """

    namespaces: bool
    uids: range | None
    disk: int
    admins_only: str = ""
    cgroups: Home | None = None
    network: str = ""


def provided() -> Isolation | None:
    """Return the isolation that this machine provides; None where jobs do not run on it."""
    if settings.CLUSTER_BACKEND != "local":
        return None
    found, groups = _probed(settings.LOCAL_UIDS[0], str(settings.DATA_DIR)), _cgroups()
    layer = groups.home.layer if groups.home is not None else ""
    network = settings.LOCAL_NETWORK == PRIVATE and found.mode is not Mode.NONE
    return replace(found, cgroup=layer, missing=(*found.missing, *groups.missing), network=network)


def policy() -> Policy:
    """Return the policy that follows from the settings and the machine."""
    disk, home = settings.LOCAL_DISK_BYTES, _cgroups().home
    # Set even where the portal should not have started (``start_problem``): replicas without the network do not start.
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
    """Return why a job of this owner would be refused; empty if it would run."""
    if settings.CLUSTER_BACKEND != "local" or owner.is_admin:
        return ""
    return policy().admins_only


def start_problem() -> str:
    """Return why the portal must not start: required isolation is not available; empty otherwise."""
    if settings.CLUSTER_BACKEND != "local":
        return ""
    if settings.LOCAL_ISOLATION == NAMESPACES:
        found = _probed(settings.LOCAL_UIDS[0], str(settings.DATA_DIR))
        if found.mode is Mode.NONE:
            how = clauses(found.missing)
            return messages.ISOLATION_REQUIRED(missing=how)
    why = _why_no_network() if settings.LOCAL_NETWORK == PRIVATE else ""
    return messages.PRIVATE_NETWORK_UNAVAILABLE(why=why) if why else ""


def _why_no_network() -> str:
    if settings.LOCAL_ISOLATION == NONE:
        return "set REGATTA_LOCAL_ISOLATION to auto or namespaces"
    if settings.COORDINATION:
        return "parameter servers would not reach the etcd of REGATTA_COORDINATION; unset it"
    uid, data = settings.LOCAL_UIDS[0], str(settings.DATA_DIR)
    found = _probed(uid, data)
    return clauses(found.missing) if found.mode is Mode.NONE else _network_problem(found.mode, uid, data)


def prepare_cgroups() -> str:
    """Prepare the cgroups of replicas when the portal starts, and end cgroups without a replica.

    Returns an error message, empty on success.
    """
    if settings.CLUSTER_BACKEND != "local":
        return ""
    problem = delegation.prepare(delegation.name_of(settings.DATA_DIR))
    if (home := _cgroups().home) is not None:
        delegation.sweep(home, cgroups.known(Path(settings.ATTEMPTS_DIR)))
    return problem


def remove_cgroups() -> None:
    """Remove the cgroups that no replica uses any more, when the portal has stopped."""
    if settings.CLUSTER_BACKEND == "local" and (home := _cgroups().home) is not None:
        delegation.close(home)


def start_line() -> str:
    """Return the line about isolation for the portal's start; empty where jobs do not run on this machine."""
    found = provided()
    if found is None:
        return ""
    missing = f" Missing: {clauses(found.missing)}." if found.missing else ""
    if settings.LOCAL_ISOLATION == NONE:
        return messages.ISOLATION_OFF()
    if found.mode is Mode.NONE:
        return f"Jobs are not isolated on this machine: only those of admins run.{missing}"
    return f"Jobs are isolated by: {', '.join(found.layers)}.{missing}"


def _cgroups() -> delegation.Found:
    return delegation.find(delegation.name_of(settings.DATA_DIR))


def _why_not(found: Isolation) -> str:
    return messages.ADMINS_ONLY_WITHOUT_ISOLATION(missing=clauses(found.missing))


@lru_cache(maxsize=4)
def _network_problem(mode: Mode, uid: int, data: str) -> str:
    """Return why jobs cannot have networks of their own. Cached, as ``_probed`` is."""
    return network_problem(mode, uid, data)


@lru_cache(maxsize=4)
def _probed(uid: int, data: str) -> Isolation:
    """Return the probed isolation. Cached per process: the probe takes a moment, and a machine seldom changes."""
    return probe(uid, (data,))
