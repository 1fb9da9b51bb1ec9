"""Attempts that are observed together: the same views as one by one, in a number of requests that does not grow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from jobs.backends.base import AttemptRef, JointObserver, Phase
from jobs.backends.kubernetes.backend import KubernetesBackend
from jobs.backends.kubernetes.manifests import Cluster, job_name, paddle_job, pod_name
from jobs.operator.client.api import Refusal
from jobs.operator.client.resources import JOBS, PODS
from jobs.operator.model import names
from tests.contracts.backend_contract import make_plan
from tests.jobs.operator.api_servers import FaithfulServer, ForbiddingServer, RefusingServer

SITE = Cluster(image="registry/runtime:1", prefix="regatta-")


def attempts(count: int, namespace: str = "team") -> list[AttemptRef]:
    return [AttemptRef(f"job-{number}", f"attempt-{namespace}-{number}", 1, namespace) for number in range(count)]


def launched(server: FaithfulServer, refs: list[AttemptRef], bundle: Path) -> KubernetesBackend:
    """Create the PaddleJobs of the attempts, each with one pod that runs."""
    backend = KubernetesBackend(cast(Any, server), SITE)
    for ref in refs:
        plan = replace(make_plan(bundle, {}), ref=ref, namespace=ref.namespace)
        server.call("POST", JOBS.path(f"regatta-{ref.namespace}"), paddle_job(plan, SITE))
        labels = {names.JOB_LABEL: job_name(ref.attempt_id)}
        body = {"metadata": {"name": pod_name(ref.attempt_id, "trainer-0"), "labels": labels}}
        server.call("POST", PODS.path(f"regatta-{ref.namespace}"), {**body, "status": {"phase": "Running"}})
    server.calls.clear()
    return backend


def test_the_backend_of_a_cluster_observes_many_at_once() -> None:
    assert isinstance(KubernetesBackend(cast(Any, FaithfulServer()), SITE), JointObserver)


def test_views_are_those_of_single_observations(tmp_path: Path) -> None:
    refs = attempts(3)
    backend = launched(server := FaithfulServer(), refs, tmp_path)
    server.call("DELETE", PODS.path("regatta-team", pod_name(refs[1].attempt_id, "trainer-0")))
    found = backend.observe_many(refs)
    assert [view and view.replicas[0].phase for view in found.values()] == [
        Phase.RUNNING,
        Phase.STARTING,
        Phase.RUNNING,
    ]


@pytest.mark.invariant("Observing running jobs on a cluster takes requests per namespace, not per job.")
@pytest.mark.parametrize("count", [2, 20])
def test_requests_do_not_grow_with_the_number_of_attempts(count: int, tmp_path: Path) -> None:
    refs = [*attempts(count), *attempts(count, "other")]
    backend = launched(server := FaithfulServer(), refs, tmp_path)
    assert len(backend.observe_many(refs)) == 2 * count
    assert sorted(server.calls) == [
        ("GET", resource.path(f"regatta-{namespace}")) for resource in (PODS, JOBS) for namespace in ("other", "team")
    ]


def test_long_lists_are_read_in_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.backends.kubernetes.backend._PAGE", "2")
    refs = attempts(5)
    backend = launched(server := FaithfulServer(), refs, tmp_path)
    assert len(backend.observe_many(refs)) == 5
    assert len(server.calls) == 6


def test_one_attempt_alone_and_one_that_is_gone_are_left_to_single_observations(tmp_path: Path) -> None:
    alone, *refs = [*attempts(1, "other"), *attempts(3)]
    backend = launched(server := FaithfulServer(), [alone, *refs], tmp_path)
    server.call("DELETE", JOBS.path("regatta-team", job_name(refs[0].attempt_id)))
    assert set(backend.observe_many([alone, *refs])) == {ref.attempt_id for ref in refs[1:]}


def test_a_namespace_that_does_not_exist_is_left_to_single_observations() -> None:
    backend = KubernetesBackend(cast(Any, ForbiddingServer()), SITE)
    assert backend.observe_many(attempts(2)) == {}


def test_of_a_server_that_does_not_answer_nothing_is_seen_after_one_request() -> None:
    asked: list[str] = []
    server = RefusingServer(Refusal(0, "Unreachable", "no route"), lambda method, kind: not asked.append(kind))
    backend = KubernetesBackend(cast(Any, server), SITE)
    assert backend.observe_many(attempts(20)) == dict.fromkeys((ref.attempt_id for ref in attempts(20)), None)
    assert asked == ["Pod"]
