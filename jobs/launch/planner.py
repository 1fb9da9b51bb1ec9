"""Launch plan of an attempt: its processes, their environment, and its quota amounts. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from jobs.backends.base import AttemptRef, LaunchPlan, ReplicaPlan
from jobs.frameworks.definitions import COMMAND, NATIVE, TABLE, is_coordinated
from jobs.spec.model import MASTER_CPU, JobSpec, RoleSpec
from runtime import contract

# The master only dispatches ranges of records; its memory is that of an interpreter with NumPy.
MASTER = RoleSpec(replicas=1, cpu=MASTER_CPU, memory=512 * 1024**2)
# Seconds of CPU time of one process beyond what its cores can use within the job's timeout.
CPU_SLACK = 60
# Seconds that a trainer waits longer for the other replicas than the platform does, whose message has the reason.
TRAINER_PATIENCE = 30


@dataclass(frozen=True)
class Site:
    """Settings of the portal's installation for a plan.

    * ``python`` runs the platform's own roles.
    * Parameter servers write a checkpoint every ``checkpoint_seconds``.
    * ``coordination``: address of the coordination store of the attempt's processes; empty: the backend creates one.
    * ``outage``: seconds for which processes continue while that store does not answer.
    * ``registration``: seconds within which replicas have to register.
    """

    ingest_url: str
    data_path: tuple[Path, ...]
    python: Path
    grace: timedelta
    log_cap: int
    coordination: str = ""
    checkpoint_seconds: float = 600.0
    outage: float = contract.OUTAGE_SECONDS
    registration: float = contract.GATHER_SECONDS


@dataclass(frozen=True)
class Build:
    """Result of a build: the folder with the code, the interpreter with the requirements, and the image they are in.

    ``image`` is empty if they are on this machine.
    """

    bundle: Path
    python: Path
    image: str = ""


@dataclass(frozen=True)
class BuildView:
    """State of a build: ``done`` holds the result, ``problem`` the message of a failure; with neither it continues.

    ``log``: the output so far, in whole lines.
    """

    done: Build | None = None
    problem: str = ""
    log: tuple[str, ...] = ()


def scaled(spec: JobSpec, *, trainers: int | None = None, pservers: int | None = None) -> JobSpec:
    """Return the specification with other numbers of replicas; None: unchanged."""
    if trainers is not None:
        spec = replace(spec, trainer=replace(spec.trainer, replicas=trainers))
    if pservers is not None:
        spec = replace(spec, pserver=replace(spec.pserver, replicas=pservers, max=pservers))
    return spec


def roles(spec: JobSpec) -> tuple[tuple[str, RoleSpec], ...]:
    """Return the roles of a job in the order in which they are started; a role may have no replicas."""
    masters = spec.masters if is_coordinated(spec.framework, spec.pserver.replicas) else 0
    master = replace(MASTER, replicas=masters, cpu=spec.master_cpu)
    return ((contract.MASTER, master), (contract.PSERVER, spec.pserver), (contract.TRAINER, spec.trainer))


def replicas(spec: JobSpec) -> Iterator[tuple[str, int, RoleSpec]]:
    """Yield every replica as (role, index, role specification)."""
    for role, each in roles(spec):
        for index in range(each.replicas):
            yield role, index, each


def amounts(spec: JobSpec) -> dict[str, float]:
    """Return the quota amounts of an attempt: cores, bytes of memory, devices, and one job."""
    role_specs = [each for _, _, each in replicas(spec)]
    return {
        "cpu": round(sum(each.cpu for each in role_specs), 3),
        "memory": sum(each.memory for each in role_specs),
        "gpu": sum(each.gpu for each in role_specs),
        "jobs": 1,
    }


def make_plan(
    ref: AttemptRef, namespace: str, spec: JobSpec, build: Build, site: Site, token: str, wire_secret: str = ""
) -> LaunchPlan:
    """Return the plan of one attempt. Deterministic."""
    return LaunchPlan(
        ref=ref,
        namespace=namespace,
        bundle=build.bundle,
        replicas=tuple(_replica(ref, spec, build, site, *one) for one in replicas(spec)),
        grace=site.grace,
        log_cap=site.log_cap,
        framework=spec.framework,
        ingest_token=token,
        wire_secret=wire_secret if is_coordinated(spec.framework, spec.pserver.replicas) and not spec.image else "",
        image=build.image,
        agents=not spec.image,
    )


def _replica(
    ref: AttemptRef, spec: JobSpec, build: Build, site: Site, role: str, index: int, each: RoleSpec
) -> ReplicaPlan:
    return ReplicaPlan(
        name=f"{role}-{index}",
        role=role,
        index=index,
        command=_command(role, spec, build, site),
        environment=_environment(ref, spec, site, role, index, each),
        cpu=each.cpu,
        memory=each.memory,
        gpu=each.gpu,
        cpu_seconds=int(spec.timeout.total_seconds() * max(1.0, each.cpu)) + CPU_SLACK,
    )


def _command(role: str, spec: JobSpec, build: Build, site: Site) -> tuple[str, ...]:
    if not _runs_user_code(role, spec):
        return str(site.python), "-m", f"runtime.{role}"
    if spec.image:
        return tuple(shlex.split(spec.entrypoint))
    words = tuple(shlex.split(spec.entrypoint)) if spec.framework == COMMAND else (str(build.python), spec.entrypoint)
    if not is_coordinated(spec.framework, spec.pserver.replicas):
        return str(build.python), "-m", "runtime.launch", "--", *words
    return (str(build.python), "-m", "runtime.gateway", "--", *words) if spec.framework == COMMAND else words


def _runs_user_code(role: str, spec: JobSpec) -> bool:
    return role == contract.TRAINER or (role == contract.PSERVER and TABLE[spec.framework].servers_run_code)


def _environment(
    ref: AttemptRef, spec: JobSpec, site: Site, role: str, index: int, each: RoleSpec
) -> Mapping[str, str]:
    threads = str(max(1, int(each.cpu)))
    environment = {
        contract.JOB_ID: ref.job_id,
        contract.ATTEMPT_ID: ref.attempt_id,
        contract.ATTEMPT: str(ref.number),
        contract.ROLE: role,
        contract.REPLICA: f"{role}-{index}",
        contract.INDEX: str(index),
        contract.TRAINERS: str(spec.trainer.replicas),
        contract.MIN_TRAINERS: str(spec.trainer.min),
        contract.PSERVERS: str(spec.pserver.replicas),
        contract.MODE: spec.mode,
        contract.PASSES: str(spec.passes),
        contract.DATASET: spec.dataset,
        # The same job gives the same parameters, whichever attempt it is.
        contract.SEED: "0",
        contract.DATA_PATH: ":".join(map(str, site.data_path)),
        contract.INGEST_URL: site.ingest_url,
        contract.OUTAGE: f"{site.outage:g}",
        contract.GATHER: f"{site.registration + TRAINER_PATIENCE:g}",
        # Libraries that start a thread for every core of the machine would use the cores of other replicas.
        "OMP_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
    }
    if spec.framework != NATIVE:
        environment[contract.FRAMEWORK] = spec.framework
        environment[contract.COST_LINES] = "1"
    if _runs_user_code(role, spec):
        environment[contract.USER_CODE] = "1"
    elif role == contract.PSERVER:
        environment[contract.CHECKPOINT_SECONDS] = f"{site.checkpoint_seconds:g}"
    if site.coordination:
        environment[contract.COORDINATION] = site.coordination
    if _runs_user_code(role, spec) and spec.env:
        environment[contract.USER_ENVIRONMENT] = json.dumps(dict(spec.env), sort_keys=True)
    return environment
