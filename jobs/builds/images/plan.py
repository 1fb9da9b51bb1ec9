"""Which images a job needs, and what they are called. Pure: the same job gives the same names, so what has a name
that the registry knows need not be made.

A name changes with the base image, the release and content of the runtime, the packages that it needs, the
requirements (in any order) and the code, and with nothing else.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Any

# Where things are in an image. The agent and the platform's roles have a Python environment of their own; the job's
# lies before it and sees its packages behind its own.
PLATFORM = PurePosixPath("/opt/regatta")
JOB = PurePosixPath("/opt/job")
ENVIRONMENT = JOB / "environment"
CODE = JOB / "code"
# Who a job's processes are: nobody who owns a file of the image.
USER, GROUP = 10001, 10001

# Raised where images are made in another way than before: none of before is taken for one of now.
_RECIPE = 1
_DIGITS = 40


class Kind(StrEnum):
    """What an image adds to its parent."""

    RUNTIME = "runtime"
    ENVIRONMENT = "environment"
    JOB = "job"


@dataclass(frozen=True)
class Platform:
    """What all jobs' images have in common. ``base``: the image at the bottom; ``runtime``: digest of the runtime's
    files; ``packages``: what the runtime needs, with versions; ``registry``: ``host[:port][/prefix]``."""

    registry: str
    base: str
    runtime: str
    packages: tuple[str, ...]


@dataclass(frozen=True)
class Image:
    """One image to make. ``folder``: where in the image it puts what it adds."""

    kind: Kind
    reference: str
    parent: str
    folder: str
    requirements: tuple[str, ...] = ()
    alone: bool = False  # of the platform's packages it sees the runtime and nothing else

    @property
    def runs(self) -> bool:
        """Whether something has to run in the parent to make it."""
        return self.kind is not Kind.JOB

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Image:
        return cls(**{**body, "kind": Kind(body["kind"]), "requirements": tuple(body["requirements"])})


@dataclass(frozen=True)
class Plan:
    """The images of a job from the bottom up, each the parent of the next; the last is the job's own."""

    images: tuple[Image, ...]
    python: str = field(default="")

    @property
    def reference(self) -> str:
        return self.images[-1].reference

    @property
    def tag(self) -> str:
        return self.reference.rpartition(":")[2]


def python_of(requirements: tuple[str, ...]) -> PurePosixPath:
    """The interpreter of user code: of its own environment where it asked for packages."""
    return (ENVIRONMENT if requirements else PLATFORM) / "bin" / "python"


def plan(
    platform: Platform, namespace: str, digest: str, requirements: tuple[str, ...], *, alone: bool = False
) -> Plan:
    """``namespace`` is the portal's: what people wrote lies in a repository of its own. ``digest``: of the code.
    ``alone``: the requirements bring packages of their own where the platform has others, as NumPy."""
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
    """The whole name of an image that is written as people write it: ``python:3.11-slim`` is
    ``docker.io/library/python:3.11-slim``."""
    first, slash, _ = reference.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return reference
    return f"docker.io/{reference}" if slash else f"docker.io/library/{reference}"


def parts(reference: str) -> tuple[str, str, str]:
    """Host, repository, and tag or digest of a whole name."""
    host, _, rest = reference.partition("/")
    if "@" in rest:
        repository, _, digest = rest.partition("@")
        return host, repository.partition(":")[0], digest
    repository, _, tag = rest.partition(":")
    return host, repository, tag or "latest"


def is_of_others(reference: str, registry: str, namespace: str) -> bool:
    """Whether it is one of those that are made here, and not of that namespace's jobs. The platform's credentials pull
    them, and they hold what other people wrote."""
    if not registry:
        return False
    host, repository, _ = parts(normal(reference))
    own_host, _, prefix = registry.partition("/")
    if _host(host) != _host(own_host) or not repository.startswith(f"{prefix}/" if prefix else ""):
        return False
    section, _, owner = repository.removeprefix(f"{prefix}/" if prefix else "").partition("/")
    return section == "jobs" and owner != namespace


def _host(name: str) -> str:
    """Without what goes without saying."""
    return name.lower().removesuffix(":443").removesuffix(":80")


def _hash(*recipe: str) -> str:
    return hashlib.sha256(json.dumps([_RECIPE, *recipe]).encode()).hexdigest()[:_DIGITS]
