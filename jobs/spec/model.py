"""JobSpec and RoleSpec: the resolved specification of a job. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from jobs.spec import quantities
from runtime import contract

# Cores of a master: it only dispatches ranges of records.
MASTER_CPU = 0.5


DEFAULT_MEMORY = 512 * 1024**2


@dataclass(frozen=True)
class RoleSpec:
    """Replicas of one role and the resources of each: ``cpu`` in cores, ``memory`` in bytes, ``gpu`` in devices.

    ``min`` and ``max`` bound the number of trainers while the job runs.
    """

    replicas: int = 1
    min: int = 1
    max: int = 1
    cpu: float = 1.0
    memory: int = DEFAULT_MEMORY
    gpu: int = 0


@dataclass(frozen=True)
class JobSpec:
    """A resolved specification: every field has a value.

    * ``masters``: each has ``master_cpu`` cores; one serves and the other is on standby.
    * ``elastic``: the platform may change the number of trainers between their ``min`` and ``max``.
    * ``image``: a container image that runs unchanged, with nothing of the platform in it; empty: the platform builds
      one from the files.
    """

    name: str
    entrypoint: str
    trainer: RoleSpec
    pserver: RoleSpec
    masters: int = 1
    master_cpu: float = MASTER_CPU
    files: Mapping[str, str] = field(default_factory=dict, repr=False)
    framework: str = "native"
    image: str = ""
    requirements: tuple[str, ...] = ()
    dataset: str = ""
    passes: int = 1
    mode: str = "sync"
    env: Mapping[str, str] = field(default_factory=dict)
    priority: str = "normal"
    timeout: timedelta = timedelta(hours=1)
    retries: int = 0
    elastic: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the fields of the schema without the files. With the files added, ``parse`` reads it back."""
        return {
            "name": self.name,
            "framework": self.framework,
            "image": self.image,
            "entrypoint": self.entrypoint,
            "requirements": list(self.requirements),
            "dataset": self.dataset,
            "passes": self.passes,
            "mode": self.mode,
            "roles": {
                contract.TRAINER: {
                    "replicas": self.trainer.replicas,
                    "min": self.trainer.min,
                    "max": self.trainer.max,
                    **_resources_json(self.trainer),
                    "gpu": self.trainer.gpu,
                },
                contract.PSERVER: {"replicas": self.pserver.replicas, **_resources_json(self.pserver)},
                contract.MASTER: {"replicas": self.masters, **self._cpu_of_master()},
            },
            "env": dict(self.env),
            "priority": self.priority,
            "timeout": quantities.span_text(self.timeout),
            "retries": self.retries,
            "elastic": self.elastic,
        }

    def _cpu_of_master(self) -> dict[str, float]:
        """Return the cores of a master, or nothing if they are the default."""
        return {} if self.master_cpu == MASTER_CPU else {"cpu": self.master_cpu}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> JobSpec:
        """Return the specification that ``to_json`` wrote. It is not validated again: it was when it was submitted."""
        trainer, pserver = body["roles"][contract.TRAINER], body["roles"][contract.PSERVER]
        master = body["roles"].get(contract.MASTER, {})
        return cls(
            name=body["name"],
            framework=body["framework"],
            entrypoint=body["entrypoint"],
            requirements=tuple(body["requirements"]),
            dataset=body["dataset"],
            passes=body["passes"],
            mode=body["mode"],
            trainer=RoleSpec(**_with_bytes(trainer)),
            pserver=RoleSpec(**_with_bytes({"min": 1, "max": pserver["replicas"], **pserver})),
            masters=master.get("replicas", 1),
            master_cpu=master.get("cpu", MASTER_CPU),
            env=dict(body["env"]),
            priority=body["priority"],
            timeout=quantities.span(body["timeout"]),
            retries=body["retries"],
            # Absent in specifications stored before jobs could name images.
            image=body.get("image", ""),
            # Absent in specifications stored before elastic jobs existed: the number of trainers stays.
            elastic=body.get("elastic", False),
        )


def _resources_json(role: RoleSpec) -> dict[str, Any]:
    return {"cpu": role.cpu, "memory": quantities.memory_text(role.memory)}


def _with_bytes(role: Mapping[str, Any]) -> dict[str, Any]:
    return {**role, "cpu": quantities.cores(role["cpu"]), "memory": quantities.memory(role["memory"])}
