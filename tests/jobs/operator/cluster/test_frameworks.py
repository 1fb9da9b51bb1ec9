"""PaddlePaddle and PyTorch from PyPI on a real cluster: ``make test-frameworks`` with KUBECONFIG and REGISTRY.

The jobs are the shipped examples. The platform builds their images. Each process runs in a pod of its own, and finds
its peers by the ConfigMap of the controller.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from regatta import Client
from tests.end_to_end.support.portal import RunningPortal
from tests.framework_jobs import (
    a_fleet_has_trained,
    example,
    smaller,
    succeeded,
    torch_has_trained,
    workers_have_trained_collectively,
)
from tests.jobs.operator.environment import base_for_paddle, controller_on, portal_on
from tests.jobs.operator.kube_cluster import Cluster, own_prefix

pytestmark = [pytest.mark.kube, pytest.mark.frameworks, pytest.mark.timeout(1200)]

CPU = 0.2  # of four processes at once on a small node


@pytest.fixture(scope="module")
def running_portal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPortal]:
    """Run a portal. Its images stay in the registry, so an unchanged job is not built again."""
    cluster, prefix = Cluster(), own_prefix("frames")
    images = {
        "REGATTA_REGISTRY": f"{cluster.registry}/tests",
        "REGATTA_REGISTRY_INSECURE": "1",
        "REGATTA_BASE_IMAGE": base_for_paddle(cluster.registry),
    }
    with (
        controller_on(cluster, tmp_path_factory.mktemp("controller"), prefix),
        portal_on(cluster, tmp_path_factory.mktemp("running_portal") / "data", prefix, **images) as running_portal,
    ):
        yield running_portal


@pytest.fixture
def portal(running_portal: RunningPortal) -> Iterator[Client]:
    with running_portal.client() as client:
        yield client


def test_paddle_s_servers_and_trainers_meet_as_pods_and_train(portal: Client, tmp_path: Path) -> None:
    job = succeeded(portal, smaller(example(portal, "paddle_fleet"), CPU))
    a_fleet_has_trained(portal, job, tmp_path)


def test_paddle_s_workers_train_collectively_as_pods(portal: Client, tmp_path: Path) -> None:
    job = succeeded(portal, smaller(example(portal, "paddle_collective"), CPU))
    workers_have_trained_collectively(portal, job, tmp_path)


def test_pytorch_s_processes_meet_as_pods_and_train(portal: Client, tmp_path: Path) -> None:
    job = succeeded(portal, smaller(example(portal, "torch_digits"), CPU))
    torch_has_trained(portal, job, tmp_path)
