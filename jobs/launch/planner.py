"""Launch plan of an attempt: its processes and their environment. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from jobs.backends.base import AttemptRef, LaunchPlan, ReplicaPlan
from jobs.frameworks.definitions import COMMAND, NATIVE, NOTEBOOK, TABLE, is_coordinated
from jobs.launch.roles import each_replica
from jobs.spec import parameters
from jobs.spec.model import JobSpec, RoleSpec
from runtime import contract

# Seconds of CPU time of one process beyond what its cores can use within the job's timeout.
CPU_SLACK = 60
# Seconds that a trainer waits longer for the other replicas than the platform does, whose message has the reason.
TRAINER_PATIENCE = 30


@dataclass(frozen=True)
class LaunchSettings:
    """Settings of the portal's installation for the plans of all jobs.

    * ``python`` runs the platform's own roles.
    * Parameter servers write a checkpoint every ``checkpoint_seconds``.
    * ``coordination``: address of the coordination store of the attempt's processes; empty: the backend creates one.
    * ``outage``: seconds for which processes continue while that store does not answer.
    * ``registration``: seconds within which replicas have to register.
    * ``traceparent``: the trace of the job's launch; empty: none is recorded.
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
    traceparent: str = ""


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


def make_plan(
    ref: AttemptRef,
    namespace: str,
    spec: JobSpec,
    build: Build,
    settings: LaunchSettings,
    token: str,
    wire_secret: str = "",
    control_key: str = "",
) -> LaunchPlan:
    """Return the plan of one attempt. Deterministic."""
    return LaunchPlan(
        ref=ref,
        namespace=namespace,
        bundle=build.bundle,
        replicas=tuple(_replica(ref, spec, build, settings, *one) for one in each_replica(spec)),
        grace=settings.grace,
        log_cap=settings.log_cap,
        framework=spec.framework,
        ingest_token=token,
        wire_secret=wire_secret if is_coordinated(spec.framework, spec.pserver.replicas) and not spec.image else "",
        control_key="" if spec.image else control_key,
        image=build.image,
        agents=not spec.image,
    )


def _replica(
    ref: AttemptRef, spec: JobSpec, build: Build, settings: LaunchSettings, role: str, index: int, each: RoleSpec
) -> ReplicaPlan:
    return ReplicaPlan(
        name=f"{role}-{index}",
        role=role,
        index=index,
        command=_command(role, spec, build, settings),
        environment=_environment(ref, spec, settings, role, index, each),
        cpu=each.cpu,
        memory=each.memory,
        gpu=each.gpu,
        cpu_seconds=int(spec.timeout.total_seconds() * max(1.0, each.cpu)) + CPU_SLACK,
    )


def _command(role: str, spec: JobSpec, build: Build, settings: LaunchSettings) -> tuple[str, ...]:
    if not _runs_user_code(role, spec):
        return str(settings.python), "-m", f"runtime.{role}"
    if spec.image:
        return tuple(shlex.split(spec.entrypoint))
    if spec.framework == NOTEBOOK:
        return str(build.python), "-m", "runtime.notebook_start"
    words = tuple(shlex.split(spec.entrypoint)) if spec.framework == COMMAND else (str(build.python), spec.entrypoint)
    if not is_coordinated(spec.framework, spec.pserver.replicas):
        return str(build.python), "-m", "runtime.launch", "--", *words
    return (str(build.python), "-m", "runtime.gateway", "--", *words) if spec.framework == COMMAND else words


def _runs_user_code(role: str, spec: JobSpec) -> bool:
    return role == contract.TRAINER or (role == contract.PSERVER and TABLE[spec.framework].servers_run_code)


def _environment(
    ref: AttemptRef, spec: JobSpec, settings: LaunchSettings, role: str, index: int, each: RoleSpec
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
        contract.DATA_PATH: ":".join(map(str, settings.data_path)),
        contract.INGEST_URL: settings.ingest_url,
        contract.OUTAGE: f"{settings.outage:g}",
        contract.GATHER: f"{settings.registration + TRAINER_PATIENCE:g}",
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
        if spec.hold:
            environment[contract.HOLD] = f"{spec.hold.total_seconds():.0f}"
    elif role == contract.PSERVER:
        environment[contract.CHECKPOINT_SECONDS] = f"{settings.checkpoint_seconds:g}"
    if settings.traceparent:
        environment[contract.TRACEPARENT] = settings.traceparent
    if settings.coordination:
        environment[contract.COORDINATION] = settings.coordination
    if _runs_user_code(role, spec):
        environment |= parameters.variables(spec.params)
    if _runs_user_code(role, spec) and spec.env:
        environment[contract.USER_ENVIRONMENT] = json.dumps(dict(spec.env), sort_keys=True)
    return environment
