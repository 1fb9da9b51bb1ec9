"""Data that kills trainers, is damaged or is missing."""

from __future__ import annotations

import pytest

from runtime import contract
from tests.faults import datasets
from tests.faults.cluster import Cluster, until
from tests.faults.recording import verdict
from tests.faults.recording.history import of_kind

pytestmark = [pytest.mark.faults, pytest.mark.processes, pytest.mark.etcd]


def test_poison_task(job, etcd):
    """W5: a record kills every trainer that reads it. It is found, left out and named; all others are trained."""
    cluster = job(
        etcd, workload="poison", pservers=0, tasks=12, passes=2, mode="async",
        variables={"REGATTA_FAULTS_BAD_RECORD": "7"},
    )  # fmt: skip
    events = cluster.finish()
    trained = {event["record"] for event in of_kind(events, "trained")}
    assert trained == set(range(12)) - {7}
    tries = [event for event in of_kind(events, "trying") if event["record"] == 7]
    assert len({event.source.partition(".")[0] for event in tries}) == 2, "blame needs two trainers where two live"
    assert any("record 7 " in text for text in cluster.portal.events())
    assert verdict.of_tasks(cluster, events) == []


def await_failure(cluster: Cluster, name: str) -> str:
    run = cluster.run(name)
    until(lambda: run.ended, f"{name} gives up", report=cluster.report)
    assert run.code == contract.EXIT_ERROR
    return cluster.portal.output(run.source)


def test_dataset_file_missing(job, etcd):
    """The file is gone before the job begins: the master names it."""
    cluster = job(etcd, launch=False, workload="queue", pservers=0)
    data_file(cluster).unlink()
    cluster.start("master-0")
    assert f"{datasets.FILE} cannot be read (No such file or directory). Upload the dataset again." in await_failure(
        cluster, "master-0"
    )


def test_dataset_file_removed_in_mid_run(job):
    """No record is to blame: the job fails at once, and names the file."""
    cluster = job(
        workload="poison", pservers=0, tasks=100, passes=50, mode="async",
        variables={"REGATTA_FAULTS_BAD_RECORD": "-1"},
    )  # fmt: skip
    cluster.await_count("trained", 20)
    data_file(cluster).unlink()
    gone = f"{datasets.FILE} cannot be read (No such file or directory). Restore the file or upload the dataset again"
    assert gone in await_failure(cluster, "master-0")
    assert not any("skipped" in text or "search" in text for text in cluster.portal.events())


def test_truncated_recordio(job, etcd):
    """The last chunk is truncated: the master reports it and hands out nothing."""
    cluster = job(etcd, launch=False, workload="queue", pservers=0)
    file = data_file(cluster)
    file.write_bytes(file.read_bytes()[:-3])
    cluster.start("master-0")
    output = await_failure(cluster, "master-0")
    assert datasets.FILE in output
    assert not of_kind(cluster.history(), "got")


def data_file(cluster: Cluster):
    return cluster.directory / "data" / datasets.NAME / datasets.FILE
