"""JobSpec and RoleSpec: a specification whose every field has its value. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from jobs.spec import quantities
from runtime import contract

# It only hands out ranges of records.
MASTER_CPU = 0.5


DEFAULT_MEMORY = 512 * 1024**2


@dataclass(frozen=True)
class RoleSpec:
    """Replicas of one role and what each may use: ``cpu`` in cores, ``memory`` in bytes. ``min`` and ``max`` bound the
    trainers that the job goes on with."""

    replicas: int = 1
    min: int = 1
    max: int = 1
    cpu: float = 1.0
    memory: int = DEFAULT_MEMORY
    gpu: int = 0


@dataclass(frozen=True)
class JobSpec:
    """A resolved specification: every field has its value. Of ``masters``, each with ``master_cpu`` cores, one serves,
    and the other stands by.
    ``elastic``: the platform may change the number of trainers between their ``min`` and ``max``. ``image``: a
    container image that is used as it is, with nothing of the platform in it; empty: one is made of the files."""

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
        """All but the files, in the words of the schema: ``parse`` reads it again once the files are put back."""
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
        """Nothing where it is as usual: hardly anybody ever says it."""
        return {} if self.master_cpu == MASTER_CPU else {"cpu": self.master_cpu}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> JobSpec:
        """What ``to_json`` wrote, without a second validation: a stored specification was valid when it came."""
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
            # Stored before people could bring images of their own.
            image=body.get("image", ""),
            # Stored before there were elastic jobs: the platform leaves it alone.
            elastic=body.get("elastic", False),
        )


def _resources_json(role: RoleSpec) -> dict[str, Any]:
    return {"cpu": role.cpu, "memory": quantities.memory_text(role.memory)}


def _with_bytes(role: Mapping[str, Any]) -> dict[str, Any]:
    return {**role, "cpu": quantities.cores(role["cpu"]), "memory": quantities.memory(role["memory"])}
