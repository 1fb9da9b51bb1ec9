"""Writes of the controller to objects that have changed since they were read."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from jobs.operator.client.api import CONFLICT
from jobs.operator.client.cache import Cache
from jobs.operator.client.metrics import Metrics
from jobs.operator.model import names
from jobs.operator.model.actions import Delete, PatchJob
from jobs.operator.run.executor import Executor
from tests.jobs.operator.api_servers import FaithfulServer
from tests.jobs.operator.world import paddle_job

POD = "wd-worker-0"


@pytest.fixture
def server() -> FaithfulServer:
    server = FaithfulServer()
    server.submit(paddle_job(worker=1))
    return server


@pytest.fixture
def executor(server: FaithfulServer) -> Iterator[Executor]:
    with ThreadPoolExecutor(1) as pool:
        yield Executor(server, Cache(), Metrics(), pool)


def put_pod(server: FaithfulServer) -> str:
    """Create a pod and return its UID."""
    body = {"kind": "Pod", "metadata": {"name": POD}, "spec": {}}
    return str(server.call("POST", "/api/v1/namespaces/team/pods", body)["metadata"]["uid"])


def test_a_pod_that_was_replaced_meanwhile_is_not_deleted(server: FaithfulServer, executor: Executor) -> None:
    (job,) = server.of(names.KIND)
    earlier = put_pod(server)
    server.drop("Pod", "team", POD)
    put_pod(server)
    outcome = executor.execute(job, [Delete("Pod", POD, earlier)])
    assert len(server.of("Pod")) == 1
    assert outcome.refusals == ()


def test_a_pod_that_is_gone_counts_as_deleted(server: FaithfulServer, executor: Executor) -> None:
    (job,) = server.of(names.KIND)
    outcome = executor.execute(job, [Delete("Pod", POD, "uid-of-one-that-was")])
    assert (outcome.refusals, outcome.done) == ((), {("Delete", "Pod"): [POD]})


def test_a_job_that_has_changed_since_it_was_read_is_not_patched(server: FaithfulServer, executor: Executor) -> None:
    (job,) = server.of(names.KIND)
    changed = copy.deepcopy(job)
    changed["metadata"]["finalizers"] = ["somebody.example/theirs"]
    server.call("PUT", f"/apis/batch.paddlepaddle.org/v1/namespaces/team/paddlejobs/{names.name_of(job)}", changed)
    outcome = executor.execute(job, [PatchJob({"metadata": {"finalizers": []}})])
    assert [refusal.status for refusal in outcome.refusals] == [CONFLICT]
    assert server.of(names.KIND)[0]["metadata"]["finalizers"] == ["somebody.example/theirs"]
