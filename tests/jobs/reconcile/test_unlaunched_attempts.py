"""Ends of attempts that the cluster does not know, with the rights of the portal's account on the cluster."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, cast

import pytest
from pytest_django import Settings

from jobs.backends import factory as backend_factory
from jobs.backends.kubernetes.backend import KubernetesBackend
from jobs.backends.kubernetes.manifests import Cluster
from jobs.builds import builders
from jobs.launch.planner import BuildView
from jobs.lifecycle.states import JobState
from jobs.messages import cluster as messages
from jobs.models import Job
from jobs.reconcile import reconciler
from jobs.reconcile.sweep import sweep
from jobs.services import jobs as job_services
from jobs.spec.model import JobSpec
from portal.common.clock import now
from quota.models import Reservation
from tests.jobs.fakes import ObedientBackend
from tests.jobs.operator.api_servers import FaithfulServer, ForbiddingServer
from tests.messages import mentions
from tests.personas import Personas

pytestmark = pytest.mark.django_db
Submit = Callable[..., Job]
UseServer = Callable[[FaithfulServer], None]
NAMESPACE = "regatta-team"


@pytest.fixture
def use_server(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> UseServer:
    """Return a function that makes the cluster of an API server the backend."""

    def put(server: FaithfulServer) -> None:
        backend = KubernetesBackend(cast(Any, server), Cluster("registry/runtime:1", prefix="regatta-"))
        monkeypatch.setattr(backend_factory, "BACKENDS", {"kubernetes": lambda: backend})
        settings.CLUSTER_BACKEND = "kubernetes"

    return put


def reserved() -> int:
    return Reservation.objects.filter(released=None).count()


def launched(submit: Submit) -> Job:
    job = submit()
    assert reconciler.reconcile(job.pk) is JobState.REGISTERING
    return job


@pytest.mark.invariant("An attempt that was never launched ends without a request to the cluster.")
def test_a_job_whose_first_build_fails_in_a_new_namespace_ends_at_once(use_server: UseServer, submit: Submit) -> None:
    server = ForbiddingServer()
    use_server(server)
    job = submit(requirements=["tiny"])
    assert reconciler.reconcile(job.pk) is JobState.FAILED
    job.refresh_from_db()
    assert (job.reason, reserved()) == ("build_failed", 0)
    assert mentions(job.why, messages.REQUIREMENTS_NEED_REGISTRY)
    assert server.calls == []


def test_a_job_that_is_cancelled_while_it_is_built_ends_at_once(
    use_server: UseServer, submit: Submit, personas: Personas, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ForbiddingServer()
    use_server(server)
    monkeypatch.setattr(builders, "of", lambda spec: Endless())
    job = submit()
    assert reconciler.reconcile(job.pk) is JobState.BUILDING
    job_services.cancel_job(actor=personas.owner, job_id=job.pk)
    assert reconciler.reconcile(job.pk) is JobState.CANCELLED
    assert (server.calls, reserved()) == ([], 0)


class Endless:
    """Builder that never has a result."""

    def begin(self, job: Job, spec: JobSpec) -> BuildView:
        return BuildView()

    def give_up(self, job: Job, spec: JobSpec) -> None:
        """Do nothing: no build runs."""


def test_a_launched_attempt_is_gone_when_its_namespace_is(
    backend: ObedientBackend, use_server: UseServer, submit: Submit, personas: Personas
) -> None:
    job = launched(submit)
    use_server(ForbiddingServer())
    job_services.cancel_job(actor=personas.owner, job_id=job.pk)
    assert reconciler.reconcile(job.pk) is JobState.CANCELLED
    assert reserved() == 0


def test_a_launched_attempt_that_the_cluster_forbids_to_stop_keeps_its_quota_and_is_logged_without_a_traceback(
    backend: ObedientBackend,
    use_server: UseServer,
    submit: Submit,
    personas: Personas,
    caplog: pytest.LogCaptureFixture,
) -> None:
    job = launched(submit)
    use_server(ForbiddingServer(existing=(NAMESPACE,), granted=()))
    job_services.cancel_job(actor=personas.owner, job_id=job.pk)
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            sweep(now())
    job.refresh_from_db()
    assert (job.state, reserved()) == ("STOPPING", 1)
    assert f'forbidden in the namespace "{NAMESPACE}"' in caplog.text
    assert [line for line in caplog.records if line.exc_info] == []
