"""Roles of a job, their replicas, and the quota amounts that these take. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from jobs.frameworks.definitions import is_coordinated
from jobs.spec.model import JobSpec, RoleSpec
from jobs.spec.validators import MASTER_CPU
from runtime import contract

# The master only dispatches ranges of records; its memory is that of an interpreter with NumPy.
MASTER = RoleSpec(replicas=1, cpu=MASTER_CPU, memory=512 * 1024**2)


def scaled(spec: JobSpec, *, trainers: int | None = None, pservers: int | None = None) -> JobSpec:
    """Return the specification with other numbers of replicas; None: unchanged."""
    if trainers is not None:
        spec = replace(spec, trainer=replace(spec.trainer, replicas=trainers))
    if pservers is not None:
        spec = replace(spec, pserver=replace(spec.pserver, replicas=pservers, max=pservers))
    return spec


def of(spec: JobSpec) -> tuple[tuple[str, RoleSpec], ...]:
    """Return the roles of a job in the order in which they are started; a role may have no replicas."""
    masters = spec.masters if is_coordinated(spec.framework, spec.pserver.replicas) else 0
    master = replace(MASTER, replicas=masters, cpu=spec.master_cpu)
    return ((contract.MASTER, master), (contract.PSERVER, spec.pserver), (contract.TRAINER, spec.trainer))


def each_replica(spec: JobSpec) -> Iterator[tuple[str, int, RoleSpec]]:
    """Yield every replica as (role, index, role specification)."""
    for role, each in of(spec):
        for index in range(each.replicas):
            yield role, index, each


def amounts(spec: JobSpec) -> dict[str, float]:
    """Return the quota amounts of an attempt: cores, bytes of memory, devices, and one job."""
    role_specs = [each for _, _, each in each_replica(spec)]
    return {
        "cpu": round(sum(each.cpu for each in role_specs), 3),
        "memory": sum(each.memory for each in role_specs),
        "gpu": sum(each.gpu for each in role_specs),
        "jobs": 1,
    }
