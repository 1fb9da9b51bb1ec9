"""Builders of what the backend launches from a code snapshot.

The result is folders of this machine (``jobs/builds/local_bundle.py``) or an image (``jobs/builds/images/``). A builder
never waits: ``begin`` is polled until it returns a result. Earlier results are reused.
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
from jobs.builds.images.plan import Plan, is_of_another_namespace
from jobs.frameworks.definitions import TABLE
from jobs.frameworks.requirements_check import lacking
from jobs.launch.planner import Build, BuildView
from jobs.lifecycle.states import JobState
from jobs.messages import cluster as messages
from jobs.models import Job
from jobs.spec.model import JobSpec
from runtime.messages import paragraph

REPLICA = "build"  # the replica name of the build's output in the log


class Builder(Protocol):
    """Interface of the builders."""

    def begin(self, job: Job, spec: JobSpec) -> BuildView:
        """Start the build, or return its present state. Raises OSError, StorageError, NotFound."""

    def made(self, job: Job, spec: JobSpec) -> Build:
        """Return the result of an earlier build."""

    def python(self) -> Path:
        """Return the interpreter of the platform's own roles."""

    def give_up(self, job: Job, spec: JobSpec) -> None:
        """Stop the build, which the job does not wait for any more, unless another job waits for it. Raises OSError."""

    def end_all(self) -> None:
        """Stop all running builds; the next ``begin`` starts them again."""


class _Bundles:
    def begin(self, job: Job, spec: JobSpec) -> BuildView:
        return local_bundle.build(job.snapshot_id, files_of(job.snapshot), spec.requirements, spec.framework)

    def made(self, job: Job, spec: JobSpec) -> Build:
        return local_bundle.made(job.snapshot_id, spec.requirements, spec.framework)

    def python(self) -> Path:
        return local_bundle.PYTHON

    def give_up(self, job: Job, spec: JobSpec) -> None:
        wanted = local_bundle.environment_folder(spec.requirements, spec.framework)
        if not any(
            local_bundle.environment_folder(other.requirements, other.framework) == wanted
            for _, other in _others_in_building(job)
        ):
            local_bundle.give_up(spec.requirements, spec.framework)

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
        image_plan = _plan_of(job, spec)
        others = [_plan_of(*other) for other in _others_in_building(job) if not other[1].image]
        # A job with other code may wait for this build, because it needs the same packages.
        if not any(image_plan.installed in (image.reference for image in other.images) for other in others):
            launcher.give_up(image_plan)

    def end_all(self) -> None:
        launcher.end_all()


class _BaseImage:
    """Builds nothing: on a cluster without a registry all jobs run from one image, and agents fetch the code."""

    def begin(self, job: Job, spec: JobSpec) -> BuildView:
        if spec.requirements:
            return BuildView(problem=paragraph(messages.REQUIREMENTS_NEED_REGISTRY(), messages.REMOVE_REQUIREMENTS()))
        return BuildView(self.made(job, spec))

    def made(self, job: Job, spec: JobSpec) -> Build:
        return Build(Path(), self.python())

    def python(self) -> Path:
        return Path(launcher.PYTHON)

    def give_up(self, job: Job, spec: JobSpec) -> None:
        """Do nothing: no build runs."""

    def end_all(self) -> None:
        """Do nothing: no build runs."""


class _OwnImage:
    """Builds nothing: the job names an image of its own."""

    def begin(self, job: Job, spec: JobSpec) -> BuildView:
        problem = image_problem(job.namespace.name, spec)
        return BuildView(problem=problem) if problem else BuildView(self.made(job, spec))

    def made(self, job: Job, spec: JobSpec) -> Build:
        return Build(Path(), Path(), spec.image)

    def python(self) -> Path:
        return current().python()

    def give_up(self, job: Job, spec: JobSpec) -> None:
        """Do nothing: no build runs."""

    def end_all(self) -> None:
        """Do nothing: no build runs."""


def runs_images() -> bool:
    """Return whether jobs may name images of their own."""
    return isinstance(backend_factory.current(), FollowedBackend)


def image_problem(namespace: str, spec: JobSpec) -> str:
    """Return why the image that the job names cannot be used; empty if it can, or if the job names none."""
    if not spec.image:
        return ""
    if not runs_images():
        return messages.IMAGES_NOT_SUPPORTED()
    if is_of_another_namespace(spec.image, settings.IMAGE_REGISTRY, namespace):
        return messages.IMAGE_OF_ANOTHER_NAMESPACE()
    return ""


def _others_in_building(job: Job) -> list[tuple[Job, JobSpec]]:
    """Return the other jobs that are being built, with their specifications."""
    others = Job.objects.filter(state=JobState.BUILDING).exclude(pk=job.pk).select_related("namespace")
    return [(other, JobSpec.from_json(other.spec)) for other in others]


def _plan_of(job: Job, spec: JobSpec) -> Plan:
    alone = TABLE[spec.framework].together
    return launcher.plan_of(job.namespace.name, job.snapshot_id, spec.requirements, alone=alone)


def of(spec: JobSpec) -> Builder:
    """Return the builder of the job."""
    return _OwnImage() if spec.image else current()


def current() -> Builder:
    """Return the builder of this installation's backend."""
    if settings.CLUSTER_BACKEND != "kubernetes":
        return _Bundles()
    return _Images() if settings.IMAGE_REGISTRY else _BaseImage()
