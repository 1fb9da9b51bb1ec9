"""From a code snapshot to what the backend can launch: folders of this machine (``jobs/builds/local_bundle.py``) or an
image (``jobs/builds/images/``).

``build`` is asked again and again until it has an answer; it never waits. What was made once is found ready.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from django.conf import settings

from jobs.backends import factory as backend_factory
from jobs.backends.base import FollowedBackend
from jobs.builds import local_bundle
from jobs.builds.code_snapshots import files_of
from jobs.builds.images import launcher
from jobs.builds.images.plan import Plan, is_of_others
from jobs.frameworks.definitions import TABLE
from jobs.frameworks.requirements_check import lacking
from jobs.launch.planner import Build, BuildView
from jobs.lifecycle.states import JobState
from jobs.models import Job
from jobs.spec.model import JobSpec

REPLICA = "build"  # the name under which what is said meanwhile is found in the log


class Builder(Protocol):
    """What both kinds can do."""

    def begin(self, job: Job, spec: JobSpec) -> BuildView:
        """Begin or look on. Raises OSError, StorageError, NotFound."""

    def made(self, job: Job, spec: JobSpec) -> Build:
        """What was made before."""

    def python(self) -> Path:
        """The interpreter of the platform's own roles."""

    def give_up(self, job: Job, spec: JobSpec) -> None:
        """Nobody waits for it any more."""

    def end_all(self) -> None:
        """End what goes on now; the next ``begin`` begins anew."""


class _Bundles:
    def begin(self, job: Job, spec: JobSpec) -> BuildView:
        return local_bundle.build(job.snapshot_id, files_of(job.snapshot), spec.requirements, spec.framework)

    def made(self, job: Job, spec: JobSpec) -> Build:
        return local_bundle.made(job.snapshot_id, spec.requirements, spec.framework)

    def python(self) -> Path:
        return local_bundle.PYTHON

    def give_up(self, job: Job, spec: JobSpec) -> None:
        """It goes on: others may ask for the same packages."""

    def end_all(self) -> None:
        local_bundle.end_all()


class _Images:
    def begin(self, job: Job, spec: JobSpec) -> BuildView:
        if problem := lacking(spec.framework, spec.requirements, has_module=False):
            return BuildView(problem=problem)
        return launcher.build(_plan_of(job, spec), job.snapshot)

    def made(self, job: Job, spec: JobSpec) -> Build:
        return launcher.made(_plan_of(job, spec))

    def python(self) -> Path:
        return Path(launcher.PYTHON)

    def give_up(self, job: Job, spec: JobSpec) -> None:
        others = Job.objects.filter(state=JobState.BUILDING, namespace=job.namespace, snapshot=job.snapshot)
        if not others.exclude(pk=job.pk).exists():
            launcher.give_up(_plan_of(job, spec))

    def end_all(self) -> None:
        launcher.end_all()


class _BaseImage:
    """Makes nothing: on a cluster without a registry jobs run from one image, and their agents fetch the code."""

    def begin(self, job: Job, spec: JobSpec) -> BuildView:
        if spec.requirements:
            return BuildView(
                problem="Jobs with requirements need images of their own, and this installation keeps none. Leave them "
                "out, or ask an admin for a registry."
            )
        return BuildView(self.made(job, spec))

    def made(self, job: Job, spec: JobSpec) -> Build:
        return Build(Path(), self.python())

    def python(self) -> Path:
        return Path(launcher.PYTHON)

    def give_up(self, job: Job, spec: JobSpec) -> None:
        """There is nothing."""

    def end_all(self) -> None:
        """There is nothing."""


class _AsItIs:
    """Makes nothing: the job names an image of its own."""

    def begin(self, job: Job, spec: JobSpec) -> BuildView:
        problem = image_problem(job.namespace.name, spec)
        return BuildView(problem=problem) if problem else BuildView(self.made(job, spec))

    def made(self, job: Job, spec: JobSpec) -> Build:
        return Build(Path(), Path(), spec.image)

    def python(self) -> Path:
        return current().python()

    def give_up(self, job: Job, spec: JobSpec) -> None:
        """There is nothing."""

    def end_all(self) -> None:
        """There is nothing."""


def runs_images() -> bool:
    """Whether jobs here may name images of their own."""
    return isinstance(backend_factory.current(), FollowedBackend)


def image_problem(namespace: str, spec: JobSpec) -> str:
    """Why the image that the job names cannot be used here; empty where it can, and where it names none."""
    if not spec.image:
        return ""
    if not runs_images():
        return "This installation runs jobs as processes of its own machine, without images. Leave image out."
    if is_of_others(spec.image, settings.IMAGE_REGISTRY, namespace):
        return "This image was made by the platform for jobs, and is not to be used by others. Name another one."
    return ""


def _plan_of(job: Job, spec: JobSpec) -> Plan:
    alone = TABLE[spec.framework].together
    return launcher.plan_of(job.namespace.name, job.snapshot_id, spec.requirements, alone=alone)


def of(spec: JobSpec) -> Builder:
    """The builder of the job."""
    return _AsItIs() if spec.image else current()


def current() -> Builder:
    """The builder of this installation's backend."""
    if settings.CLUSTER_BACKEND != "kubernetes":
        return _Bundles()
    return _Images() if settings.IMAGE_REGISTRY else _BaseImage()
