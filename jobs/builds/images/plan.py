"""Plan of the images of a job, with their names. Pure.

The same job gives the same names, so an image whose name is in the registry need not be built. A name depends on the
base image, the release and content of the runtime, the packages that it needs, the requirements (in any order) and the
code, and on nothing else.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Any

# Paths in an image. The agent and the platform's roles have their own Python environment. The job's environment has the
# platform's packages on its search path, after its own.
PLATFORM = PurePosixPath("/opt/regatta")
JOB = PurePosixPath("/opt/job")
ENVIRONMENT = JOB / "environment"
CODE = JOB / "code"
# User and group of a job's processes, which own no file of the image.
USER, GROUP = 10001, 10001

# Increment this when images are built differently: it is part of all names, so that earlier images are not reused.
_RECIPE = 1
_DIGITS = 40


class Kind(StrEnum):
    """Kind of the files that an image adds to its parent."""

    RUNTIME = "runtime"
    ENVIRONMENT = "environment"
    JOB = "job"


@dataclass(frozen=True)
class Platform:
    """Inputs that all images share.

    ``registry``: ``host[:port][/prefix]``; ``base``: the base image; ``runtime``: digest of the runtime's files;
    ``packages``: packages of the runtime, with versions.
    """

    registry: str
    base: str
    runtime: str
    packages: tuple[str, ...]


@dataclass(frozen=True)
class Image:
    """One image to build. ``folder``: the path in the image of the files that it adds."""

    kind: Kind
    reference: str
    parent: str
    folder: str
    requirements: tuple[str, ...] = ()
    alone: bool = False  # of the platform's packages it contains only the runtime

    @property
    def runs(self) -> bool:
        """Whether a program has to run in the parent to build it."""
        return self.kind is not Kind.JOB

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Image:
        return cls(**{**body, "kind": Kind(body["kind"]), "requirements": tuple(body["requirements"])})


@dataclass(frozen=True)
class Plan:
    """Images of a job, each the parent of the next; the last is the job's own."""

    images: tuple[Image, ...]
    python: str = field(default="")

    @property
    def reference(self) -> str:
        return self.images[-1].reference

    @property
    def installed(self) -> str:
        """Reference of the last image with packages: the parent of the job's own."""
        return self.images[-1].parent

    @property
    def tag(self) -> str:
        return self.reference.rpartition(":")[2]


def python_of(requirements: tuple[str, ...]) -> PurePosixPath:
    """Return the interpreter of user code: that of the job's environment if it has requirements."""
    return (ENVIRONMENT if requirements else PLATFORM) / "bin" / "python"


def plan(
    platform: Platform, namespace: str, digest: str, requirements: tuple[str, ...], *, alone: bool = False
) -> Plan:
    """Return the plan of a job's images.

    * ``namespace``: the job's namespace in the portal; user code goes to a repository of the namespace.
    * ``digest``: that of the code.
    * ``alone``: the requirements install their own releases of packages that the platform has too, such as NumPy.
    """
    images = tuple(_images(platform, namespace, digest, tuple(sorted({line.strip() for line in requirements})), alone))
    return Plan(images, str(python_of(requirements)))


def _images(
    platform: Platform, namespace: str, digest: str, requirements: tuple[str, ...], alone: bool
) -> Iterator[Image]:
    parent = normal(platform.base)
    own = f"{platform.registry}/jobs/{namespace}"
    packages = tuple(sorted(platform.packages))
    runtime = f"{platform.registry}/runtime:{_hash(parent, platform.runtime, *packages)}"
    yield Image(Kind.RUNTIME, runtime, parent, str(PLATFORM), packages)
    parent = runtime
    if requirements:
        environment = f"{own}:e-{_hash(parent, *requirements, *(['alone'] if alone else []))}"
        yield Image(Kind.ENVIRONMENT, environment, parent, str(ENVIRONMENT), requirements, alone)
        parent = environment
    yield Image(Kind.JOB, f"{own}:j-{_hash(parent, digest)}", parent, str(CODE))


def normal(reference: str) -> str:
    """Return the full name of an image: ``docker.io/library/python:3.11-slim`` for ``python:3.11-slim``."""
    first, slash, _ = reference.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return reference
    return f"docker.io/{reference}" if slash else f"docker.io/library/{reference}"


def parts(reference: str) -> tuple[str, str, str]:
    """Return host, repository, and tag or digest of a full name."""
    host, _, rest = reference.partition("/")
    if "@" in rest:
        repository, _, digest = rest.partition("@")
        return host, repository.partition(":")[0], digest
    repository, _, tag = rest.partition(":")
    return host, repository, tag or "latest"


def is_of_another_namespace(reference: str, registry: str, namespace: str) -> bool:
    """Return whether the platform built the image for jobs of another namespace.

    The platform's credentials could pull such images, and they contain code of other users.
    """
    if not registry:
        return False
    host, repository, _ = parts(normal(reference))
    own_host, _, prefix = registry.partition("/")
    if _host(host) != _host(own_host) or not repository.startswith(f"{prefix}/" if prefix else ""):
        return False
    section, _, owner = repository.removeprefix(f"{prefix}/" if prefix else "").partition("/")
    return section == "jobs" and owner != namespace


def _host(name: str) -> str:
    """Return a host in lower case without the default port."""
    return name.lower().removesuffix(":443").removesuffix(":80")


def _hash(*recipe: str) -> str:
    return hashlib.sha256(json.dumps([_RECIPE, *recipe]).encode()).hexdigest()[:_DIGITS]
