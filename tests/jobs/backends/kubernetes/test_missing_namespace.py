"""The Kubernetes backend with the rights of the portal's account, in namespaces that do not exist or are forbidden."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from jobs.backends.base import AttemptRef, AttemptView, BackendUnavailable, Container, LaunchFailed
from jobs.backends.kubernetes.backend import KubernetesBackend
from jobs.backends.kubernetes.manifests import Cluster, paddle_job
from jobs.messages import cluster as messages
from jobs.operator.client.api import Refusal
from jobs.operator.client.resources import JOBS
from runtime import contract
from tests.contracts.backend_contract import make_plan
from tests.jobs.operator.api_servers import ForbiddingServer, RefusingServer
from tests.messages import pattern

REF = AttemptRef("job", "attempt", 1, "team")
NAMESPACE = "regatta-team"
SITE = Cluster(image="registry/runtime:1", prefix="regatta-")
# Requests about an attempt, each of which the backend answers in its own way if the attempt is gone.
Request = Callable[[KubernetesBackend], object]
REQUESTS: dict[str, Request] = {
    "observe": lambda backend: backend.observe(REF),
    "container": lambda backend: backend.container(REF, "trainer-0"),
    "scale": lambda backend: backend.scale(REF, "trainer", 3),
    "restart": lambda backend: backend.restart(REF, "trainer-0", 2),
    "kill": lambda backend: backend.kill(REF, "trainer-0"),
    "stop": lambda backend: backend.stop(REF, timedelta(seconds=1)),
    "cleanup": lambda backend: backend.cleanup(REF),
    "attempts": lambda backend: list(backend.attempts({"team"})),
}
GONE: dict[str, object] = {"observe": AttemptView(gone=True), "container": Container(), "attempts": []}


def backend_on(server: object) -> KubernetesBackend:
    return KubernetesBackend(cast(Any, server), SITE)


@pytest.mark.invariant("With the portal's rights, an attempt in a namespace that does not exist is gone.")
@pytest.mark.parametrize("name", REQUESTS)
def test_in_a_namespace_that_does_not_exist_an_attempt_is_gone(name: str) -> None:
    assert REQUESTS[name](backend_on(ForbiddingServer())) == GONE.get(name)


@pytest.mark.parametrize("name", REQUESTS)
def test_in_a_namespace_without_rights_the_refusal_is_reported(name: str) -> None:
    server = ForbiddingServer(existing=(NAMESPACE,), granted=())
    with pytest.raises(BackendUnavailable, match=f'forbidden in the namespace "{NAMESPACE}"'):
        REQUESTS[name](backend_on(server))


def test_a_namespace_that_cannot_be_read_counts_as_existing() -> None:
    """Only an answer of the cluster ends an attempt: an account without the right to read namespaces gets none."""
    server = RefusingServer(Refusal(403, "Forbidden", "all is forbidden"), lambda method, kind: True)
    with pytest.raises(BackendUnavailable, match="all is forbidden"):
        backend_on(server).observe(REF)


def test_a_launch_into_a_namespace_that_does_not_exist_says_so() -> None:
    environment = {contract.COORDINATION: "sqlite:////regatta/store.sqlite3"}
    with pytest.raises(LaunchFailed, match=pattern(messages.CLUSTER_NOT_PREPARED, name=NAMESPACE)) as failed:
        backend_on(ForbiddingServer()).launch(make_plan(Path(), environment))
    assert not failed.value.retryable


def test_the_attempts_of_the_given_namespaces_are_listed() -> None:
    server = ForbiddingServer(existing=(NAMESPACE, "regatta-other"))
    backend = backend_on(server)
    plan = make_plan(Path(), {contract.COORDINATION: "sqlite:////regatta/store.sqlite3"})
    server.call("POST", JOBS.path(NAMESPACE), paddle_job(plan, SITE))
    server.call("POST", JOBS.path(NAMESPACE), {"metadata": {"name": "of-another-program"}})
    assert list(backend.attempts({"team", "other", "missing"})) == [plan.ref]
    assert list(backend.attempts({"other"})) == []
