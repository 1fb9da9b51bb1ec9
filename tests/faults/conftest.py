from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.cluster import Cluster, Plan
from tests.servers.etcd_server import EtcdServer

_numbers = itertools.count(1)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """Start a job; all of its processes are ended after the test."""
    started: list[Cluster] = []

    def start(etcd: EtcdServer | None = None, launch: bool = True, **plan: object) -> Cluster:
        cluster = Cluster(tmp_path / f"job-{next(_numbers)}", Plan(**plan), etcd)
        started.append(cluster)
        if launch:
            cluster.launch()
        return cluster

    yield start
    for cluster in started:
        cluster.close()
