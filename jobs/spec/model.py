"""JobSpec and RoleSpec: the resolved specification of a job, and its stored JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from datetime import timedelta
from typing import Any

from jobs.spec import stall_actions
from jobs.spec.fields import FIELDS
from jobs.spec.validators import DEFAULT_MEMORY, MASTER_CPU
from runtime import contract


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
    * ``hold``: time for which a program that ends with an exception is held; None: it is not.
    * ``stall_timeout``: time without progress after which ``on_stall`` applies; None: it follows from the steps.
    """

    name: str
    entrypoint: str
    trainer: RoleSpec
    pserver: RoleSpec
    masters: int = 1
    master_cpu: float = MASTER_CPU
    files: Mapping[str, str] = dataclass_field(default_factory=dict, repr=False)
    framework: str = "native"
    image: str = ""
    requirements: tuple[str, ...] = ()
    dataset: str = ""
    passes: int = 1
    mode: str = "sync"
    params: Mapping[str, bool | int | float | str] = dataclass_field(default_factory=dict)
    env: Mapping[str, str] = dataclass_field(default_factory=dict)
    priority: str = "normal"
    timeout: timedelta = timedelta(hours=1)
    on_stall: str = stall_actions.NOTIFY
    stall_timeout: timedelta | None = None
    hold: timedelta | None = None
    retries: int = 0
    elastic: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the fields of the schema without the files. With the files added, ``parse`` reads it back."""
        parts: dict[str, Any] = {"": self, contract.TRAINER: self.trainer, contract.PSERVER: self.pserver}
        body: dict[str, Any] = {}
        for field in FIELDS:
            value = getattr(parts[field.owner], field.attribute)
            if not field.stored or (field.omits_default and value == field.default):
                continue
            mapping = body
            for key in field.mapping_keys:
                mapping = mapping.setdefault(key, {})
            mapping[field.name] = field.kind.dump(value)
        return body

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> JobSpec:
        """Return the specification that ``to_json`` wrote. It is not validated again: it was when it was submitted."""
        values: dict[str, Any] = {}
        for field in FIELDS:
            mapping = body
            for key in field.mapping_keys:
                mapping = mapping.get(key, {}) if field.later else mapping[key]
            if field.stored and (field.name in mapping or not field.later):
                values[field.path] = field.kind.load(mapping[field.name])
        return cls.of(values)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> JobSpec:
        """Return the specification with these values by path; the others have the defaults of the class."""
        parts: dict[str, dict[str, Any]] = {"": {}, contract.TRAINER: {}, contract.PSERVER: {}}
        for field in FIELDS:
            if field.path in values:
                parts[field.owner][field.attribute] = values[field.path]
        trainer, pserver = parts[contract.TRAINER], parts[contract.PSERVER]
        # The number of parameter servers is fixed.
        pserver["max"] = pserver["replicas"]
        return cls(**parts[""], trainer=RoleSpec(**trainer), pserver=RoleSpec(**pserver))
