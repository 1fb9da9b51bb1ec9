"""Table of the fields of a job specification: the one place where a field is declared. Pure.

The parser, the stored JSON, and the schema of the OpenAPI document follow from the table. Tests compare it with
``JobSpec``, with the form of the page "New job", and with the guide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Any

from jobs.frameworks import definitions as frameworks
from jobs.spec import kinds, stall_actions, validators
from jobs.spec.document import Document
from jobs.spec.kinds import Kind
from runtime import contract

TRAINER, PSERVER, MASTER = (f"roles.{role}" for role in (contract.TRAINER, contract.PSERVER, contract.MASTER))


@dataclass(frozen=True)
class Field:
    """One field of the specification.

    * ``path``: its place in the document, such as ``roles.trainer.cpu``.
    * ``description``: a phrase for the OpenAPI document.
    * ``default``: the value if it is absent, null or invalid; a function takes the document.
    * ``check``: the rule that takes the document, the path and the value, and returns the value to use.
    * ``in_model``: its place in JobSpec, if it differs from the path without ``roles.``.
    * ``stored``: whether the stored JSON has it; ``omits_default``: only with another value than the default.
    * ``later``: stored specifications may lack it, which means the default of JobSpec.
    """

    path: str
    kind: Kind
    description: str
    default: Any = None
    check: Callable[[Document, str, Any], Any] = validators.accept
    in_model: str = ""
    required: bool = False
    stored: bool = True
    omits_default: bool = False
    later: bool = False
    # Parts of the path, and the part of JobSpec ("" for JobSpec itself) and the attribute that hold the value.
    mapping_keys: tuple[str, ...] = dataclass_field(init=False)
    name: str = dataclass_field(init=False)
    owner: str = dataclass_field(init=False)
    attribute: str = dataclass_field(init=False)

    def __post_init__(self) -> None:
        *mapping_keys, name = self.path.split(".")
        owner, _, attribute = (self.in_model or self.path.removeprefix("roles.")).rpartition(".")
        parts = {"mapping_keys": tuple(mapping_keys), "name": name, "owner": owner, "attribute": attribute}
        for key, value in parts.items():
            object.__setattr__(self, key, value)

    def default_in(self, document: Document) -> Any:
        return self.default(document) if callable(self.default) else self.default


# In the order in which the stored JSON has them and messages name them.
FIELDS: tuple[Field, ...] = (
    Field(
        "name",
        kinds.text(maxLength=63),
        "Lowercase letters, digits and hyphens.",
        default="",
        check=validators.check_name,
        required=True,
    ),
    Field(
        "framework",
        kinds.text(enum=list(frameworks.NAMES)),
        "Framework of the job. Default: native, or command if the job has an image.",
        default=validators.default_framework,
        check=validators.check_framework,
    ),
    Field(
        "image",
        kinds.text(),
        "A container image to run unchanged.",
        default="",
        check=validators.check_image,
        later=True,
    ),
    Field(
        "entrypoint",
        kinds.COMMAND,
        "The Python file to run. For the framework command: the program and its arguments.",
        check=validators.check_entrypoint,
    ),
    Field(
        "files",
        kinds.MAPPING,
        "The text of each file by its path. Required unless the job has an image.",
        default={},
        check=validators.check_files,
        stored=False,
    ),
    Field(
        "requirements",
        kinds.TEXTS,
        "Packages that pip installs before the job starts.",
        default=(),
        check=validators.check_requirements,
    ),
    Field(
        "dataset",
        kinds.text(),
        "Name of the dataset, with an optional version after @.",
        default="",
        check=validators.check_dataset,
    ),
    Field("passes", kinds.integer(1, validators.MOST_PASSES), "Passes over the dataset.", default=1),
    Field(
        "mode",
        kinds.text(),
        "How pushes of trainers become versions: sync, async, m_of_n(M), ssp(s) or outer(H).",
        default=validators.DEFAULT_MODE,
        check=validators.check_mode,
    ),
    Field(
        f"{TRAINER}.replicas",
        kinds.integer(1, validators.MOST_REPLICAS),
        "Trainers that the job starts with.",
        default=1,
        later=True,
    ),
    Field(
        f"{TRAINER}.min",
        kinds.integer(1, validators.MOST_REPLICAS),
        "The fewest trainers that the job can continue with.",
        default=validators.default_least,
        check=validators.check_least,
        later=True,
    ),
    Field(
        f"{TRAINER}.max",
        kinds.integer(1, validators.MOST_REPLICAS),
        "The most trainers that the job can have.",
        default=validators.default_most,
        check=validators.check_most,
        later=True,
    ),
    Field(f"{TRAINER}.cpu", kinds.CORES, "Cores of each trainer.", default=1.0, check=validators.check_cpu),
    Field(
        f"{TRAINER}.memory",
        kinds.MEMORY,
        "Memory of each trainer.",
        default=validators.DEFAULT_MEMORY,
        check=validators.check_memory,
    ),
    Field(f"{TRAINER}.gpu", kinds.integer(0, 64), "GPUs of each trainer.", default=0, later=True),
    Field(
        f"{PSERVER}.replicas",
        kinds.unread_integer(0, validators.MOST_REPLICAS),
        "Parameter servers. The default depends on the framework.",
        check=validators.check_servers,
    ),
    Field(f"{PSERVER}.cpu", kinds.CORES, "Cores of each parameter server.", default=1.0, check=validators.check_cpu),
    Field(
        f"{PSERVER}.memory",
        kinds.MEMORY,
        "Memory of each parameter server.",
        default=validators.DEFAULT_MEMORY,
        check=validators.check_memory,
    ),
    Field(
        f"{MASTER}.replicas",
        kinds.integer(1, validators.MOST_MASTERS),
        "Masters; the second is on standby.",
        default=1,
        in_model="masters",
        later=True,
    ),
    Field(
        f"{MASTER}.cpu",
        kinds.CORES,
        "Cores of each master.",
        default=validators.MASTER_CPU,
        check=validators.check_master_cpu,
        in_model="master_cpu",
        omits_default=True,
        later=True,
    ),
    Field(
        "params",
        kinds.PARAMETERS,
        "Parameters that the program reads: numbers, texts and booleans by name.",
        default={},
        check=validators.check_params,
        omits_default=True,
        later=True,
    ),
    Field("env", kinds.MAPPING, "Environment variables.", default={}, check=validators.check_env),
    Field("priority", kinds.choice("low", "normal", "high"), "Priority in the queue.", default="normal"),
    Field(
        "timeout",
        kinds.SPAN,
        "Maximum run time.",
        default=validators.DEFAULT_TIMEOUT,
        check=validators.check_timeout,
    ),
    Field(
        "on_stall",
        kinds.choice(*stall_actions.NAMES),
        "What happens when a running job makes no progress: an event, a restart of the replica, or the attempt's end.",
        default=stall_actions.NOTIFY,
        check=validators.check_on_stall,
        omits_default=True,
        later=True,
    ),
    Field(
        "stall_timeout",
        kinds.SPAN,
        "Time without progress after which the job is stalled. Default: 60 s or 20 steps, the longer of both.",
        check=validators.check_stall_timeout,
        omits_default=True,
        later=True,
    ),
    Field(
        "hold",
        kinds.SPAN,
        "Time for which a program that ends with an exception is held with its frames. Default: none.",
        check=validators.check_hold,
        omits_default=True,
        later=True,
    ),
    Field(
        "retries",
        kinds.integer(0, validators.MOST_RETRIES),
        "Number of automatic retries after a failure.",
        default=0,
    ),
    Field(
        "elastic",
        kinds.BOOLEAN,
        "Whether the platform may change the number of trainers. Default: yes if max is above replicas.",
        check=validators.check_elastic,
        later=True,
    ),
)

# Fields and mappings that others depend on. A rule that needs another field's value comes after it.
_READ_FIRST = ("image", "files", "framework", PSERVER, TRAINER, MASTER)


def _names_by_mapping() -> dict[str, tuple[str, ...]]:
    names: dict[str, dict[str, None]] = {}
    for field in FIELDS:
        keys = (*field.mapping_keys, field.name)
        for depth, key in enumerate(keys):
            names.setdefault(".".join(keys[:depth]), {})[key] = None
    return {path: tuple(known) for path, known in names.items()}


def _reading_order() -> tuple[Field, ...]:
    first = [field for start in _READ_FIRST for field in FIELDS if start in (field.path, ".".join(field.mapping_keys))]
    return (*first, *(field for field in FIELDS if field not in first))


# The known names of each mapping by its path; the document itself has the path "".
NAMES: Mapping[str, tuple[str, ...]] = _names_by_mapping()
READING_ORDER: tuple[Field, ...] = _reading_order()


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a specification, for the OpenAPI document."""
    schema = _object_schema()
    for field in FIELDS:
        parent = schema
        for key in field.mapping_keys:
            parent = parent["properties"].setdefault(key, _object_schema())
        parent["properties"][field.name] = {**field.kind.schema, "description": field.description}
        if field.required:
            parent.setdefault("required", []).append(field.name)
    return schema


def _object_schema() -> dict[str, Any]:
    return {"type": "object", "properties": {}, "additionalProperties": False}
